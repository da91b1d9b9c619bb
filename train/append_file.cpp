#include "train/append_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace lockstep {

AppendFile::AppendFile(std::filesystem::path path, Mode mode) : path_(std::move(path)) {
  const int existing = mode == Mode::create_new ? O_EXCL : 0;
  descriptor_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | existing, 0644);
  if (descriptor_ < 0)
    throw DataError(str(path_.string(), ": cannot open for writing: ", std::strerror(errno)));
}

AppendFile::~AppendFile() {
  close(descriptor_);
}

void AppendFile::append(std::string_view record) {
  ssize_t written = -1;
  do {
    written = write(descriptor_, record.data(), record.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(record.size())) return;
  const char* reason = written < 0 ? std::strerror(errno) : "the disk is full or a quota reached";
  throw TransientError(str(path_.string(), ": cannot append: ", reason));
}

void AppendFile::truncate(std::int64_t bytes) {
  if (ftruncate(descriptor_, bytes) != 0)
    throw DataError(str(path_.string(), ": cannot truncate: ", std::strerror(errno)));
}

}  // namespace lockstep
