#include "data/pack/text_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <glob.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCompressedBytes = std::size_t{1} << 18;  // bytes per read

[[noreturn]] void fail(const fs::path& path, const std::string& what,
                       const std::error_code& error) {
  fail_io(path, what, error.value());
}

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

// A directory above the one that is read.
struct Place {
  dev_t device;
  ino_t file;
  bool operator==(const Place&) const = default;
};

// `above`: the directories that contain it.
void append_files_below(const fs::path& directory, std::vector<Place>& above,
                        std::vector<fs::path>& files) {
  struct stat about {};
  if (stat(directory.c_str(), &about) != 0)
    fail(directory, "cannot read the directory", {errno, std::generic_category()});
  const Place here{about.st_dev, about.st_ino};
  if (std::ranges::find(above, here) != above.end())
    throw DataError(
        str(directory.string(), ": symbolic link loop; remove it, or list the files to pack"));
  above.push_back(here);
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const auto& path = it->path();
    if (is_hidden(path)) continue;
    std::error_code missing, unknown;
    const auto status = fs::status(path, missing);
    if (fs::is_directory(status))
      append_files_below(path, above, files);
    else if (fs::is_regular_file(status))
      files.push_back(path);
    else if (!fs::exists(status))
      fail(path, fs::is_symlink(path, unknown) ? "broken symbolic link" : "cannot open", missing);
    else
      throw DataError(
          str(path.string(), ": not a regular file; remove it, or list it as an input to read it"));
  }
  if (error) fail(directory, "cannot read the directory", error);
  above.pop_back();
}

void append_files(const fs::path& path, std::vector<fs::path>& files) {
  std::error_code unknown;
  if (path == "-" || !fs::is_directory(path, unknown)) {
    files.push_back(path);
    return;
  }
  const auto first = static_cast<std::ptrdiff_t>(files.size());
  std::vector<Place> above;
  append_files_below(path, above, files);
  std::sort(files.begin() + first, files.end());
}

// Returns the names that match a pattern, sorted.
std::vector<fs::path> matches_of(const fs::path& pattern) {
  if (pattern.string().find_first_of("*?[") == std::string::npos) return {};
  glob_t found{};
  const int code = glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<fs::path> matches(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (code != 0 && code != GLOB_NOMATCH)
    fail(pattern, "cannot search for files", std::make_error_code(std::errc::io_error));
  return matches;
}

}  // namespace

std::vector<fs::path> matching_paths(const std::vector<fs::path>& paths) {
  std::vector<fs::path> all;
  for (const auto& path : paths) {
    std::error_code error;
    if (path == "-" || fs::exists(fs::status(path, error))) {
      all.push_back(path);
      continue;
    }
    const auto matches = matches_of(path);
    if (matches.empty() && path.string().find_first_of("*?[") != std::string::npos)
      throw DataError(str(path.string(), ": no file matches the pattern"));
    if (matches.empty())
      fail(path, "cannot open",
           error ? error : std::make_error_code(std::errc::no_such_file_or_directory));
    all.insert(all.end(), matches.begin(), matches.end());
  }
  return all;
}

std::vector<fs::path> text_files(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const auto& path : matching_paths(paths))
    append_files(path, files);
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
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);  // a hint; fails for a pipe
  bytes_.resize(kMagicBytes);
  bytes_.resize(read_file(bytes_));
  decompressor_ = decompressor_for({bytes_.data(), bytes_.size()});
}

TextSource::~TextSource() {
  if (descriptor_ != STDIN_FILENO) close(descriptor_);
}

std::size_t TextSource::read(std::span<char> out) {
  std::size_t done = 0;
  if (decompressor_) {
    done = decompress(out);
  } else {
    done = std::min(out.size(), bytes_.size() - next_);  // read to recognize the format
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(next_), done, out.begin());
    next_ += done;
    done += read_file(out.subspan(done));
  }
  offset_ += static_cast<std::int64_t>(done);
  return done;
}

std::size_t TextSource::read_file(std::span<char> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto n = ::read(descriptor_, out.data() + done, out.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, str("cannot read at byte ", taken_), {errno, std::generic_category()});
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
    taken_ += n;
  }
  return done;
}

std::size_t TextSource::decompress(std::span<char> out) {
  std::size_t done = 0;
  const auto refuse = [&](const auto&... what) {
    throw DataError(str(path_.string(), ": at byte ",
                        taken_ - static_cast<std::int64_t>(bytes_.size() - next_), ", byte ",
                        offset_ + static_cast<std::int64_t>(done), " of the text: ", what...));
  };
  while (done < out.size()) {
    if (next_ == bytes_.size()) {
      bytes_.resize(kCompressedBytes);
      bytes_.resize(read_file(bytes_));
      next_ = 0;
      if (bytes_.empty() && !within_) break;
    }
    try {  // with no bytes at the end of the file, to get the remaining output
      const auto step = decompressor_->step(std::span(bytes_).subspan(next_), out.subspan(done));
      next_ += step.taken;
      done += step.made;
      within_ = !step.ended;
      if (bytes_.empty() && within_ && step.made == 0)
        throw DataError("the compressed text is truncated");
    } catch (const DataError& error) {
      refuse(error.what());
    }
  }
  return done;
}

void TextSource::skip_to(std::int64_t offset) {
  LOCKSTEP_CHECK(offset >= offset_, path_.string(), ": byte ", offset, " was read already");
  if (!decompressor_ && offset > taken_) {
    std::error_code unknown;
    const auto bytes = fs::file_size(path_, unknown);
    if (!unknown && static_cast<std::uintmax_t>(offset) > bytes)
      throw DataError(str(path_.string(), ": ends at byte ", bytes, ", expected ", offset));
    if (lseek(descriptor_, offset, SEEK_SET) != offset)
      fail(path_, str("cannot seek to byte ", offset), {errno, std::generic_category()});
    next_ = bytes_.size();
    offset_ = taken_ = offset;
    return;
  }
  std::vector<char> skipped(kCompressedBytes);
  while (offset_ < offset) {
    const auto wanted = std::min<std::int64_t>(offset - offset_, kCompressedBytes);
    if (read(std::span(skipped).first(static_cast<std::size_t>(wanted))) == 0)
      throw DataError(
          str(path_.string(), ": ends at byte ", offset_, " of its text, expected ", offset));
  }
}

}  // namespace lockstep
