// AppendFile: a file that grows by whole records, each in one write(2), so that a reader or a crash
// sees records, never halves of two.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "core/error.h"

namespace lockstep {

class AppendFile {
 public:
  enum class Mode : std::uint8_t { create_new, keep };  // keep: or create

  // Throws as fail_io() does when it cannot be opened, or exists and must be new.
  AppendFile(const std::filesystem::path& path, Mode mode);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  const std::filesystem::path& path() const { return path_; }
  bool is_named() const;  // false after the file was removed, moved or replaced
  // Throws as fail_io() does, naming the byte, as when the disk is full; the file is then as it
  // was.
  void append(std::string_view record);
  void truncate(std::int64_t bytes);
  void sync();  // returns when all that was appended is on the disk

 private:
  AppendFile(std::filesystem::path path, int descriptor);

  std::filesystem::path path_;
  int descriptor_;
  std::int64_t size_bytes_ = 0;
};

}  // namespace lockstep
