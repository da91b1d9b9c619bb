#include "core/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <new>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/progress.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSyncedBytes = std::size_t{256} << 20;
constexpr int kMostInterruptions = 1000;  // of a read or write; more mean faulty storage
// Direct writing: alignment of memory, offsets and sizes, and size of a buffer. There are two
// buffers so that the disk does not wait.
constexpr std::size_t kBlockBytes = 4096, kBufferBytes = RangeWriter::kDirectBytes / 2;

// Reservations of open files, which are per process, as is the limit.
struct Promises {
  std::mutex mutex;
  std::size_t files = 0;
  rlim_t limit_before = 0;  // limit before the first reservation
} promises;
constexpr std::size_t kOtherFiles = 1280;  // sockets, logs, and files of allow_open_files()

// Remedy for an error, "" if unknown. `room`: remedy for a full disk.
std::string_view advice(int error, std::string_view room) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return room;
    case EFBIG: return "raise the limit of file sizes (ulimit -f), or choose another file system";
    case EMFILE: return "raise the limit of open files (ulimit -n)";
    default: return "";
  }
}

fs::path directory_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (status.type() == fs::file_type::none) fail_io(path, "cannot access", error.value());
  return status;
}

const char* kind_of(fs::file_type type) {
  return type == fs::file_type::directory ? "a directory" : "a special file";
}

// The file that a rename to `path` should replace: the target of symbolic links, which may not
// exist.
fs::path target_of(fs::path path) {
  const auto type = status_of(path).type();
  if (type != fs::file_type::regular && type != fs::file_type::not_found)
    throw DataError(
        str(path.string(), ": expected a regular file or a new name, found ", kind_of(type)));
  constexpr int kMostLinks = 40;  // same as Linux
  std::error_code unknown;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, unknown)); ++i)
    path = directory_of(path) / fs::read_symlink(path, unknown);
  return path;
}

// Writes to a pipe or a character device.
void write_stream(const fs::path& path, std::string_view text) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0) fail_io(path, "cannot open", errno);
  int error = 0;
  while (!text.empty() && error == 0) {
    const auto n = write(descriptor, text.data(), text.size());
    if (n >= 0)
      text.remove_prefix(static_cast<std::size_t>(n));
    else if (errno != EINTR)
      error = errno;
  }
  close(descriptor);
  if (error != 0) fail_io(path, "cannot write", error);
}

}  // namespace

void throw_io_error(int error, const std::string& text) {
  switch (error) {
    case EACCES:
    case EPERM:
    case EKEYEXPIRED:
    case EKEYREJECTED:
    case ENOKEY: throw RefusedError(text);
    case ENOENT:
    case ENOTDIR: throw DataError(text);
    // A retry cannot succeed.
    case EEXIST:
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOSYS:
    case ENOTEMPTY:
    case EOPNOTSUPP:
    case EXDEV: throw AccessError(text);
    default: throw StorageError(text);
  }
}

void fail_io(const fs::path& path, const std::string& what, int error, std::string_view room) {
  const auto todo = advice(error, room);
  throw_io_error(
      error, str(path.string(), ": ", what, ": ", reason(error), todo.empty() ? "" : "; ", todo));
}

bool is_named(int descriptor, const fs::path& path) {
  struct stat held {};
  struct stat named {};
  if (fstat(descriptor, &held) != 0) fail_io(path, "cannot access the open file", errno);
  if (stat(path.c_str(), &named) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    fail_io(path, "cannot access", errno);
  }
  return held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

bool path_exists(const fs::path& path) {
  return fs::exists(status_of(path));
}

bool directory_exists(const fs::path& path) {
  return fs::is_directory(status_of(path));
}

std::vector<fs::path> directory_entries(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error))
    entries.push_back(it->path());
  if (error.value() == ENOTDIR && path_exists(directory))
    throw AccessError(str(directory.string(), ": cannot read the directory: ", error.message()));
  if (error) fail_io(directory, "cannot read the directory", error.value());
  std::sort(entries.begin(), entries.end());
  return entries;
}

ReadFile::ReadFile(fs::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe without a writer must not hang. Regular files ignore it.
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail_io(path_, "cannot open", errno);
  look();
}

ReadFile::ReadFile(int descriptor, fs::path path)
    : path_(std::move(path)), descriptor_(descriptor) {
  look();
}

void ReadFile::look() {
  struct stat status {};
  const int error = fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    if (error != 0) fail_io(path_, "cannot access", error);
    throw DataError(
        str(path_.string(), ": expected a regular file, found ",
            kind_of(S_ISDIR(status.st_mode) ? fs::file_type::directory : fs::file_type::unknown)));
  }
  size_bytes_ = status.st_size;
}

ReadFile::ReadFile(ReadFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_) {}

ReadFile::~ReadFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void ReadFile::read(std::span<std::byte> out, std::int64_t offset) const {
  const auto wanted = static_cast<std::int64_t>(out.size());
  if (offset < 0 || wanted > size_bytes_ || offset > size_bytes_ - wanted)
    fail(offset,
         str("expected ", wanted, " bytes, but the file has ", size_bytes_, "; is it truncated?"));
  std::int64_t done = 0;
  int interruptions = 0;
  while (done < wanted) {
    const auto n = pread(descriptor_, out.data() + done, static_cast<std::size_t>(wanted - done),
                         offset + done);
    if (n < 0 && errno == EINTR && ++interruptions < kMostInterruptions) continue;
    if (n < 0) fail_io(path_, str("at byte ", offset + done, ": cannot read"), errno);
    if (n == 0) fail(offset + done, "the file shrank while it was read");
    done += n;
    made_progress();
  }
}

void ReadFile::drop_cache() const {
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);  // only advice; failure is ignored
}

void ReadFile::fail(std::int64_t offset, const std::string& what) const {
  throw DataError(str(path_.string(), ": at byte ", offset, ": ", what));
}

std::string read_text(const fs::path& path, std::int64_t most_bytes) {
  return read_text(ReadFile(path), most_bytes);
}

std::string read_text(const ReadFile& file, std::int64_t most_bytes) {
  if (file.size_bytes() > most_bytes)
    file.fail(most_bytes,
              str("expected at most ", most_bytes, " bytes, but the file has ", file.size_bytes()));
  std::string text(static_cast<std::size_t>(file.size_bytes()), '\0');
  file.read(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

void for_each_line(const ReadFile& file, FunctionRef<bool(std::string_view line)> act) {
  constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;
  std::string text;
  for (std::int64_t offset = 0; offset < file.size_bytes();) {
    const auto begin = text.size();
    const auto bytes = std::min(kPieceBytes, file.size_bytes() - offset);
    text.resize(begin + static_cast<std::size_t>(bytes));
    file.read(std::as_writable_bytes(std::span(text).subspan(begin)), offset);
    offset += bytes;
    std::size_t done = 0;
    for (auto end = text.find('\n', begin); end != text.npos; end = text.find('\n', done)) {
      if (!act(std::string_view(text).substr(done, end - done))) return;
      done = end + 1;
    }
    text.erase(0, done);
  }
}

std::optional<std::string> last_line(const fs::path& path, std::int64_t most_bytes) {
  if (!path_exists(path)) return std::nullopt;
  const ReadFile file(path);
  const auto begin = std::max<std::int64_t>(file.size_bytes() - most_bytes, 0);
  std::string text(static_cast<std::size_t>(file.size_bytes() - begin), '\0');
  file.read(std::as_writable_bytes(std::span(text)), begin);
  text.resize(text.rfind('\n') + 1);  // npos + 1 is 0
  if (text.empty()) return std::nullopt;
  text.pop_back();
  const auto newline = text.rfind('\n');
  if (newline == text.npos && begin > 0) return std::nullopt;
  return text.substr(newline + 1);
}

void allow_open_files(std::size_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto wanted = static_cast<rlim_t>(count) + 256;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  setrlimit(RLIMIT_NOFILE, &limit);
}

OpenFilesRoom::OpenFilesRoom(std::size_t least, std::size_t most) {
  const std::lock_guard lock(promises.mutex);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit = {};
  if (promises.limit_before == 0) promises.limit_before = limit.rlim_cur;
  const auto all = static_cast<std::size_t>(limit.rlim_max);
  const auto taken = std::min(kOtherFiles, all - all / 4) + promises.files;
  count_ = std::clamp(all > taken ? (all - taken) / 2 : 0, std::min(least, most), most);
  promises.files += count_;
  const auto wanted =
      std::min(limit.rlim_max, promises.limit_before + static_cast<rlim_t>(promises.files));
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

OpenFilesRoom::~OpenFilesRoom() {
  const std::lock_guard lock(promises.mutex);
  promises.files -= count_;
}

RangeWriter::RangeWriter(const fs::path& path, fs::path shown, Way way, Start start)
    : shown_(std::move(shown)) {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (start == Start::empty ? O_TRUNC : 0);
  if (way == Way::direct) {
    filling_ = make_buffer();
    descriptor_ = open(path.c_str(), flags | O_DIRECT, 0666);
    may_be_direct_ = is_direct_ = descriptor_ >= 0;
  }
  if (descriptor_ < 0) descriptor_ = open(path.c_str(), flags, 0666);
  if (descriptor_ < 0) fail_io(shown_, "cannot create", errno);
}

RangeWriter::~RangeWriter() {
  gone_ = Event();
  behind_.reset();  // waits for its writes
  if (descriptor_ >= 0) close(descriptor_);
}

RangeWriter::Buffer RangeWriter::make_buffer() {
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, kBufferBytes)));
  if (buffer == nullptr) throw std::bad_alloc();
  return buffer;
}

void RangeWriter::write(std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK(descriptor_ >= 0, shown_.string(), ": write after commit");
  if (filling_ == nullptr) {
    put(bytes, offset_);
    offset_ += static_cast<std::int64_t>(bytes.size());
    return;
  }
  while (!bytes.empty()) {
    // Fills up to the end of the current block first, then whole blocks.
    const auto in_block = static_cast<std::size_t>(offset_) % kBlockBytes;
    const auto most = in_block == 0 ? kBufferBytes : kBlockBytes - in_block;
    const auto count = std::min(bytes.size(), most - filled_bytes_);
    std::memcpy(filling_.get() + filled_bytes_, bytes.data(), count);
    filled_bytes_ += count;
    bytes = bytes.subspan(count);
    if (filled_bytes_ == most) put_behind();
  }
}

void RangeWriter::seek(std::int64_t offset) {
  LOCKSTEP_CHECK(offset >= 0, shown_.string(), ": cannot seek to byte ", offset);
  if (offset == offset_ + static_cast<std::int64_t>(filled_bytes_)) return;
  put_rest();
  offset_ = offset;
}

// Writes the full buffer in the background, while the other one is filled.
void RangeWriter::put_behind() {
  if (!behind_) {
    going_ = make_buffer();
    behind_.emplace(Device{}, "writing", Stream::Mode::queued);
  }
  gone_.synchronize();
  behind_->enqueue([this, bytes = std::span<const std::byte>(filling_.get(), filled_bytes_),
                    at = offset_](Stream&) { put(bytes, at); });
  gone_ = behind_->record();
  offset_ += static_cast<std::int64_t>(filled_bytes_);
  filled_bytes_ = 0;
  std::swap(filling_, going_);
}

void RangeWriter::put_rest() {
  gone_.synchronize();
  const std::span<const std::byte> rest(filling_.get(), filled_bytes_);
  const auto blocks = filled_bytes_ / kBlockBytes * kBlockBytes;
  put(rest.first(blocks), offset_);
  put(rest.subspan(blocks), offset_ + static_cast<std::int64_t>(blocks));
  offset_ += static_cast<std::int64_t>(filled_bytes_);
  filled_bytes_ = 0;
}

void RangeWriter::set_direct(bool direct) {
  if (direct == is_direct_) return;
  const int flags = fcntl(descriptor_, F_GETFL);
  fcntl(descriptor_, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT);
  is_direct_ = direct;
}

void RangeWriter::put(std::span<const std::byte> bytes, std::int64_t at) {
  int interruptions = 0;
  while (!bytes.empty()) {
    set_direct(may_be_direct_ && at % kBlockBytes == 0 && bytes.size() % kBlockBytes == 0);
    const auto n = pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kSyncedBytes), at);
    if (n < 0 && errno == EINTR && ++interruptions < kMostInterruptions) continue;
    if (n < 0 && errno == EINVAL && is_direct_) {  // this file system has larger blocks
      may_be_direct_ = false;
      continue;
    }
    if (n < 0) fail_io(shown_, str("cannot write at byte ", at), errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    at += n;
    made_progress();
    if (is_direct_) continue;
    // Sync regularly, so that the last sync is short for any file size.
    unsynced_bytes_ += static_cast<std::size_t>(n);
    if (unsynced_bytes_ >= kSyncedBytes) {
      if (fdatasync(descriptor_) != 0) fail_io(shown_, "cannot sync", errno);
      unsynced_bytes_ = 0;
    }
  }
}

void RangeWriter::commit() {
  LOCKSTEP_CHECK(descriptor_ >= 0, shown_.string(), ": commit called twice");
  put_rest();
  if (fsync(descriptor_) != 0) fail_io(shown_, "cannot sync", errno);
  // EINTR leaves the descriptor closed on Linux, and the bytes are synced already.
  if (close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR)
    fail_io(shown_, "cannot close", errno);
}

WriteFile::WriteFile(fs::path path)
    : path_(target_of(std::move(path))), temporary_(str(path_.string(), ".tmp-", getpid())) {
  writer_.emplace(temporary_, path_, RangeWriter::Way::cached, RangeWriter::Start::empty);
}

WriteFile::~WriteFile() {
  writer_.reset();
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void WriteFile::write(std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK(writer_, path_.string(), ": write after commit");
  writer_->write(bytes);
  size_bytes_ += static_cast<std::int64_t>(bytes.size());
}

void WriteFile::write_at(std::span<const std::byte> bytes, std::int64_t offset) {
  LOCKSTEP_CHECK(writer_, path_.string(), ": write after commit");
  writer_->seek(offset);
  writer_->write(bytes);
  writer_->seek(size_bytes_);
}

void WriteFile::commit() {
  LOCKSTEP_CHECK(writer_, path_.string(), ": commit called twice");
  writer_->commit();
  writer_.reset();
  if (rename(temporary_.c_str(), path_.c_str()) != 0)
    fail_io(path_, str("cannot rename ", temporary_.filename().string(), " to it"), errno);
  temporary_.clear();
  sync_directory(directory_of(path_));
}

void write_text(const fs::path& path, std::string_view text) {
  if (const auto status = status_of(path); fs::is_character_file(status) || fs::is_fifo(status))
    return write_stream(path, text);
  WriteFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

void make_directories(const fs::path& directory) {
  std::error_code unknown;
  if (directory.empty() || fs::is_directory(directory, unknown)) return;
  make_directories(directory.parent_path());
  if (mkdir(directory.c_str(), 0777) != 0) {
    const int error = errno;
    if (error == EEXIST && fs::is_directory(directory, unknown)) return;
    const bool taken = error == EEXIST || error == ENOTDIR;  // the name is not a directory
    fail_io(directory, "cannot create the directory", taken ? ENOTDIR : error);
  }
  sync_directory(directory_of(directory));
}

void make_directory(const fs::path& directory) {
  if (mkdir(directory.c_str(), 0777) != 0) fail_io(directory, "cannot create the directory", errno);
  sync_directory(directory_of(directory));
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_io(path, "cannot remove", error.value());
}

void sync_directory(const fs::path& directory) {
  const char* name = directory.empty() ? "." : directory.c_str();
  const int descriptor = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_io(directory, "cannot open the directory", errno);
  // EINVAL: the file system has no directory syncs, so ignore it.
  const int error = fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  close(descriptor);
  if (error != 0) fail_io(directory, "cannot sync the directory", error);
}

void rename_durably(const fs::path& from, const fs::path& to) {
  if (rename(from.c_str(), to.c_str()) != 0)
    fail_io(from, str("cannot rename to ", to.string()), errno);
  sync_directory(directory_of(to));
  if (directory_of(from) != directory_of(to)) sync_directory(directory_of(from));
}

}  // namespace lockstep
