#include "train/observe/append_only_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <span>
#include <unistd.h>
#include <vector>

#include "core/file.h"

namespace lockstep {

namespace {

int opened(const std::filesystem::path& path, AppendOnlyFile::Mode mode) {
  const int existing = mode == AppendOnlyFile::Mode::create_new ? O_EXCL : 0;
  const int descriptor =
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | existing, 0644);
  if (descriptor < 0) fail_io(path, "cannot open for writing", errno);
  return descriptor;
}

}  // namespace

void renew_file(const std::filesystem::path& path, std::int64_t bytes) {
  constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;
  if (!path_exists(path)) return;
  const ReadFile from(path);
  WriteFile to(path);
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(bytes, kPieceBytes)));
  for (std::int64_t at = 0; at < bytes;) {
    const auto here =
        std::span(piece).first(static_cast<std::size_t>(std::min(bytes - at, kPieceBytes)));
    from.read(here, at);
    to.write(here);
    at += std::ssize(here);
  }
  to.commit();
}

AppendOnlyFile::AppendOnlyFile(std::filesystem::path path, int descriptor)
    : path_(std::move(path)),
      descriptor_(descriptor),
      size_bytes_(lseek(descriptor, 0, SEEK_END)) {}

AppendOnlyFile::AppendOnlyFile(const std::filesystem::path& path, Mode mode)
    : AppendOnlyFile(path, opened(path, mode)) {
  sync_directory(path_.parent_path());
}

AppendOnlyFile::~AppendOnlyFile() {
  close(descriptor_);
}

void AppendOnlyFile::append(std::string_view record) {
  // Writes again only after a partial write; the next write reports the error.
  for (auto rest = record; !rest.empty();) {
    const auto n = write(descriptor_, rest.data(), rest.size());
    if (n >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      const int error = errno;
      if (rest.size() < record.size()) truncate(size_bytes_);
      fail_io(path_, str("at byte ", size_bytes_, ": cannot append"), error);
    }
  }
  size_bytes_ += static_cast<std::int64_t>(record.size());
}

bool AppendOnlyFile::is_named() const {
  return lockstep::is_named(descriptor_, path_);
}

void AppendOnlyFile::truncate(std::int64_t bytes) {
  if (ftruncate(descriptor_, bytes) != 0) fail_io(path_, "cannot truncate", errno);
  size_bytes_ = bytes;
}

void AppendOnlyFile::sync() {
  if (fsync(descriptor_) != 0) fail_io(path_, "cannot sync", errno);
}

}  // namespace lockstep
