// AppendOnlyFile: a file to which whole records are appended, each with one write(2). After a
// crash, and for concurrent readers, the file holds whole records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "core/error.h"

namespace lockstep {

// Replaces a file, if it exists, by a copy of its first `bytes` bytes. A stale process that has the
// old file open then cannot write to the new one. Throws like fail_io().
void renew_file(const std::filesystem::path& path, std::int64_t bytes);

class AppendOnlyFile {
 public:
  enum class Mode : std::uint8_t { create_new, keep };  // keep: open the file, or create it

  // Throws like fail_io() if the file cannot be opened, or exists although it must be new.
  AppendOnlyFile(const std::filesystem::path& path, Mode mode);
  AppendOnlyFile(const AppendOnlyFile&) = delete;
  AppendOnlyFile& operator=(const AppendOnlyFile&) = delete;
  ~AppendOnlyFile();

  const std::filesystem::path& path() const { return path_; }
  bool is_named() const;  // false after the file was removed, moved or replaced
  // Throws like fail_io(), naming the byte, for example when the disk is full. The file is
  // unchanged then.
  void append(std::string_view record);
  void sync();  // returns when all appended records are on the disk

 private:
  void truncate(std::int64_t bytes);
  AppendOnlyFile(std::filesystem::path path, int descriptor);

  std::filesystem::path path_;
  int descriptor_;
  std::int64_t size_bytes_ = 0;
};

}  // namespace lockstep
