#include "train/append_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "core/file.h"

namespace lockstep {

namespace {

int opened(const std::filesystem::path& path, AppendFile::Mode mode) {
  const int existing = mode == AppendFile::Mode::create_new ? O_EXCL : 0;
  const int descriptor =
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | existing, 0644);
  if (descriptor < 0)
    throw DataError(str(path.string(), ": cannot open for writing: ", std::strerror(errno)));
  return descriptor;
}

}  // namespace

AppendFile::AppendFile(std::filesystem::path path, int descriptor)
    : path_(std::move(path)),
      descriptor_(descriptor),
      size_bytes_(lseek(descriptor, 0, SEEK_END)) {}

AppendFile::AppendFile(const std::filesystem::path& path, Mode mode)
    : AppendFile(path, opened(path, mode)) {
  sync_directory(path_.parent_path());
}

AppendFile::~AppendFile() {
  close(descriptor_);
}

void AppendFile::append(std::string_view record) {
  ssize_t written = -1;
  do {
    written = write(descriptor_, record.data(), record.size());
  } while (written < 0 && errno == EINTR);
  const auto size = static_cast<std::int64_t>(record.size());
  if (written == size) {
    size_bytes_ += size;
    return;
  }
  const char* reason = written < 0 ? std::strerror(errno) : "the disk is full or a quota reached";
  const auto text = str(path_.string(), ": at byte ", size_bytes_, ": cannot append: ", reason);
  truncate(size_bytes_);
  throw DataError(text);
}

void AppendFile::truncate(std::int64_t bytes) {
  if (ftruncate(descriptor_, bytes) != 0)
    throw DataError(str(path_.string(), ": cannot truncate: ", std::strerror(errno)));
  size_bytes_ = bytes;
}

void AppendFile::sync() {
  if (fsync(descriptor_) != 0)
    throw DataError(str(path_.string(), ": cannot sync: ", std::strerror(errno)));
}

}  // namespace lockstep
