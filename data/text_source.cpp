#include "data/text_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "core/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& what,
                       const std::error_code& error) {
  throw DataError(str(path.string(), ": ", what, ": ", error.message()));
}

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

void append_files_below(const fs::path& directory, std::vector<fs::path>& files) {
  const auto first = static_cast<std::ptrdiff_t>(files.size());
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (is_hidden(it->path())) {
      if (it->is_directory(error)) it.disable_recursion_pending();
    } else if (it->is_regular_file(error)) {
      files.push_back(it->path());
    }
  }
  if (error) fail(directory, "cannot read the directory", error);
  std::sort(files.begin() + first, files.end());
}

}  // namespace

std::vector<fs::path> text_files(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const auto& path : paths) {
    std::error_code error;
    if (path == "-" || fs::exists(fs::status(path, error))) {
      if (path != "-" && fs::is_directory(path))
        append_files_below(path, files);
      else
        files.push_back(path);
    } else {
      fail(path, "cannot open",
           error ? error : std::make_error_code(std::errc::no_such_file_or_directory));
    }
  }
  return files;
}

std::int64_t total_bytes(const std::vector<fs::path>& files) {
  std::int64_t total = 0;
  for (const auto& file : files) {
    std::error_code error;
    if (file == "-" || !fs::is_regular_file(file, error)) return 0;
    const auto bytes = fs::file_size(file, error);
    if (!error) total += static_cast<std::int64_t>(bytes);
  }
  return total;
}

TextSource::TextSource(fs::path path) : path_(std::move(path)) {
  descriptor_ = path_ == "-" ? STDIN_FILENO : open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail(path_, "cannot open", {errno, std::generic_category()});
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);  // a hint; a pipe has none
}

TextSource::~TextSource() {
  if (descriptor_ != STDIN_FILENO) close(descriptor_);
}

std::size_t TextSource::read(std::span<char> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto n = ::read(descriptor_, out.data() + done, out.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, str("cannot read at byte ", offset_), {errno, std::generic_category()});
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
    offset_ += n;
  }
  return done;
}

}  // namespace lockstep
