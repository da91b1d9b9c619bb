#include "data/hashed_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;  // collects small writes

}  // namespace

HashedFile::HashedFile(const fs::path& path, std::span<const std::byte> header, std::int64_t kept)
    : path_(path),
      writer_(path, path, RangeWriter::Way::cached,
              kept == 0 ? RangeWriter::Start::empty : RangeWriter::Start::shared),
      synced_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (synced_ < 0) fail("cannot open", errno);
  put(header);
  if (kept > size_bytes_) add_to_hash(size_bytes_, kept);
  size_bytes_ = std::max(size_bytes_, kept);
  writer_.seek(size_bytes_);
  if (truncate(path.c_str(), size_bytes_) != 0) fail("cannot truncate", errno);
}

HashedFile::~HashedFile() {
  if (synced_ >= 0) close(synced_);
}

void HashedFile::add_to_hash(std::int64_t begin, std::int64_t end) {
  const ReadFile file(path_);
  std::vector<std::byte> piece;
  for (; begin < end; begin += static_cast<std::int64_t>(piece.size())) {
    piece.resize(std::min(kBufferBytes, static_cast<std::size_t>(end - begin)));
    file.read(piece, begin);
    hash_.add(piece);
  }
}

void HashedFile::fail(const char* what, int error) const {
  fail_io(path_, what, error);
}

void HashedFile::sync() const {
  if (fdatasync(synced_) != 0) fail("cannot sync", errno);
}

void HashedFile::put(std::span<const std::byte> bytes) {
  hash_.add(bytes);
  writer_.write(bytes);
  size_bytes_ += static_cast<std::int64_t>(bytes.size());
}

void HashedFile::write(std::span<const std::byte> bytes) {
  const bool large = bytes.size() > kBufferBytes / 2;
  if (large || buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (large) return put(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void HashedFile::flush() {
  if (buffer_.empty()) return;
  put(buffer_);
  buffer_.clear();
}

void HashedFile::write_header(std::span<const std::byte> header) {
  flush();
  writer_.seek(0);
  writer_.write(header);
  writer_.seek(size_bytes_);
}

void HashedFile::commit() {
  flush();
  writer_.commit();
}

}  // namespace lockstep
