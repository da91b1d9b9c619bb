// HashedFile: a file that is written from its begin to its end, and hashed on the way; or from
// where it was left.
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
  // The file begins with `header`, whatever is in it, and has `kept` bytes, or becomes so long.
  // Throws DataError where it is shorter.
  HashedFile(const std::filesystem::path& path, std::span<const std::byte> header,
             std::int64_t kept);
  HashedFile(const HashedFile&) = delete;
  HashedFile& operator=(const HashedFile&) = delete;
  ~HashedFile();

  void write(std::span<const std::byte> bytes);            // behind what was written
  void flush();                                            // gives it to the system
  void sync() const;                                       // what was given; by any thread
  std::int64_t size_bytes() const { return size_bytes_; }  // what was given to the system
  std::string hash() const { return hash_.hex(); }         // of what was given to the system
  void write_header(std::span<const std::byte> header);  // another one: the hash is no longer right
  void commit();

 private:
  void put(std::span<const std::byte> bytes);
  void add_to_hash(std::int64_t begin, std::int64_t end);
  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path path_;
  RangeWriter writer_;
  int synced_ = -1;  // a descriptor of its own
  Hasher hash_;
  std::int64_t size_bytes_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace lockstep
