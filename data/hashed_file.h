// HashedFile writes a file from start to end and hashes it on the way. It can resume a partial
// file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/hash.h"

namespace lockstep {

class HashedFile {
 public:
  // Opens the file at `path`, writes `header` at its start and truncates it to `kept` bytes. Throws
  // DataError if it is shorter.
  HashedFile(const std::filesystem::path& path, std::span<const std::byte> header,
             std::int64_t kept);
  HashedFile(const HashedFile&) = delete;
  HashedFile& operator=(const HashedFile&) = delete;
  ~HashedFile();

  void write(std::span<const std::byte> bytes);  // appends
  void flush();                                  // passes buffered bytes to the system
  void sync() const;                             // syncs flushed bytes to the disk; from any thread
  std::int64_t size_bytes() const { return size_bytes_; }  // bytes flushed so far
  std::string hash() const { return hash_.hex(); }         // of the bytes flushed so far
  void write_header(std::span<const std::byte> header);  // replaces the header; invalidates hash()
  void commit();

 private:
  void put(std::span<const std::byte> bytes);
  void add_to_hash(std::int64_t begin, std::int64_t end);
  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path path_;
  RangeWriter writer_;
  int synced_ = -1;  // separate descriptor, so that any thread can sync
  Hasher hash_;
  std::int64_t size_bytes_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace lockstep
