#include "data/remote/cache_directory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/log.h"
#include "core/units.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "lockstep part 1\n";
constexpr std::size_t kHashDigits = 32;
constexpr const char* kPart = ".part";

[[noreturn]] void fail(const fs::path& path, const char* what, int error) {
  fail_io(path, what, error, "free some space, or set data.cache_directory to another directory");
}

[[noreturn]] void fail_to_lock(const fs::path& path, int error) {
  throw_io_error(error, str(path.string(), ": cannot lock: ", reason(error),
                            "; put data.cache_directory on a local disk"));
}

std::int64_t marks_of(std::int64_t bytes) {
  const auto blocks = (bytes + PartFile::kBlockBytes - 1) / PartFile::kBlockBytes;
  return (blocks + 7) / 8;
}

// Does not wait: returns false if another process has the lock.
bool try_lock(const Descriptor& file, int kind, const fs::path& path) {
  if (flock(file.number(), kind | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK) fail_to_lock(path, errno);
  return false;
}

// Locks the names in the directory. Waits for the current owner, which holds it only briefly.
Descriptor lock_names(const fs::path& directory) {
  const auto path = directory / "lock";
  Descriptor all(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  while (all && flock(all.number(), LOCK_EX) != 0)
    if (errno != EINTR) fail(path, "cannot lock", errno);
  if (!all) fail(path, "cannot open", errno);
  return all;
}

struct stat status_of(const Descriptor& file, const fs::path& path) {
  struct stat status {};
  if (fstat(file.number(), &status) != 0) fail(path, "cannot read its status", errno);
  return status;
}

bool is_hash(std::string_view name) {
  return name.size() == kHashDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

PartFile::PartFile(fs::path whole, Descriptor part, std::int64_t bytes)
    : whole_(std::move(whole)),
      path_(whole_.string() + kPart),
      file_(std::move(part)),
      bytes_(bytes),
      present_(static_cast<std::size_t>(marks_of(bytes))) {
  const auto size = status_of(file_, path_).st_size;
  if (size == bytes_) {  // a process was killed between the last two steps
    std::fill(present_.begin(), present_.end(), 0xff);
    return;
  }
  std::string mark(kMark.size(), '\0');
  read(std::as_writable_bytes(std::span(mark)), bytes_);
  if (mark == kMark)
    read(std::as_writable_bytes(std::span(present_)),
         bytes_ + static_cast<std::int64_t>(kMark.size()));
  else
    put(std::as_bytes(std::span(kMark)), bytes_);
}

std::int64_t PartFile::file_bytes(std::int64_t bytes) {
  return bytes + static_cast<std::int64_t>(kMark.size()) + marks_of(bytes);
}

std::vector<ByteRange> PartFile::missing() const {
  const std::scoped_lock lock(mutex_);
  std::vector<ByteRange> ranges;
  for (std::int64_t block = 0; block < blocks(); ++block) {
    if ((present_[static_cast<std::size_t>(block / 8)] >> (block % 8) & 1) != 0) continue;
    const auto first = block * kBlockBytes, end = std::min(first + kBlockBytes, bytes_);
    if (!ranges.empty() && ranges.back().end == first)
      ranges.back().end = end;
    else
      ranges.push_back({first, end});
  }
  return ranges;
}

void PartFile::put(std::span<const std::byte> bytes, std::int64_t offset) const {
  while (!bytes.empty()) {
    const auto n = pwrite(file_.number(), bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, "cannot write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

void PartFile::write(std::span<const std::byte> bytes, std::int64_t offset) {
  put(bytes, offset);
  const auto end = offset + static_cast<std::int64_t>(bytes.size());
  const auto done = end == bytes_ ? blocks() : end / kBlockBytes;
  for (auto block = offset / kBlockBytes; block < done; ++block) {
    const std::scoped_lock lock(mutex_);
    auto& byte = present_[static_cast<std::size_t>(block / 8)];
    byte = static_cast<std::uint8_t>(byte | 1 << (block % 8));
    put(std::as_bytes(std::span(&byte, 1)),
        bytes_ + static_cast<std::int64_t>(kMark.size()) + block / 8);
  }
}

void PartFile::read(std::span<std::byte> out, std::int64_t offset) const {
  while (!out.empty()) {
    const auto n = pread(file_.number(), out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path_, "cannot read", n == 0 ? EIO : errno);
    out = out.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

void PartFile::forget() {
  const std::scoped_lock lock(mutex_);
  std::fill(present_.begin(), present_.end(), 0);
  put(std::as_bytes(std::span(kMark)), bytes_);
  put(std::as_bytes(std::span(present_)), bytes_ + static_cast<std::int64_t>(kMark.size()));
}

Descriptor PartFile::keep() {
  // Sync before the rename, so that a power cut cannot leave wrong or extra bytes under the name.
  if (ftruncate(file_.number(), bytes_) != 0) fail(path_, "cannot truncate", errno);
  if (fdatasync(file_.number()) != 0) fail(path_, "cannot sync", errno);
  const auto names = lock_names(whole_.parent_path());
  if (rename(path_.c_str(), whole_.c_str()) != 0) fail(path_, "cannot rename", errno);
  // The returned descriptor cannot write.
  Descriptor opened(open(whole_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) fail(whole_, "cannot open", errno);
  // No process can remove it between these two calls, because that needs the lock of names.
  flock(file_.number(), LOCK_UN);
  if (!try_lock(opened, LOCK_SH, whole_)) fail(whole_, "cannot lock", EWOULDBLOCK);
  return opened;
}

void PartFile::remove() {
  const auto names = lock_names(whole_.parent_path());
  unlink(path_.c_str());
}

struct CacheDirectory::Entry {
  fs::path path;
  std::string hash;
  std::int64_t bytes = 0;
  timespec used{};
};

CacheDirectory::CacheDirectory(fs::path path, std::int64_t most_bytes)
    : path_(std::move(path)), most_bytes_(most_bytes) {
  make_directories(path_);
  const auto name = path_ / "lock";
  const Descriptor file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) fail(name, "cannot create (data.cache_directory must be writable)", errno);
  if (flock(file.number(), LOCK_SH) != 0) fail_to_lock(name, errno);
  if (most_bytes_ != 0) return;
  std::int64_t held = 0;
  for (const auto& entry : entries())
    held += entry.bytes;
  std::error_code error;
  const auto space = fs::space(path_, error);
  if (error) fail(path_, "cannot read the free space", error.value());
  most_bytes_ = (static_cast<std::int64_t>(space.available) + held) / 2;
}

Descriptor CacheDirectory::open(const std::string& hash, std::int64_t bytes) const {
  const auto path = path_ / hash;
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno != ENOENT) fail(path, "cannot open", errno);
    return {};
  }
  if (status_of(file, path).st_size != bytes) return {};  // take() removes it
  if (!try_lock(file, LOCK_SH, path)) return {};          // it is being removed
  if (status_of(file, path).st_nlink == 0) return {};
  futimens(file.number(), nullptr);  // marks it as used now
  return file;
}

std::vector<CacheDirectory::Entry> CacheDirectory::entries() const {
  std::vector<Entry> found;
  for (const auto& path : directory_entries(path_)) {
    const auto name = path.filename().string();
    const bool is_part = name.ends_with(kPart);
    const auto hash = is_part ? name.substr(0, name.size() - std::strlen(kPart)) : name;
    struct stat status {};
    if (is_hash(hash) && lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode))
      found.push_back({path, hash, status.st_size, status.st_mtim});
  }
  std::sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) {
    return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec
                                          : a.used.tv_nsec < b.used.tv_nsec;
  });
  return found;
}

// Requires the lock of names.
bool CacheDirectory::remove(const Entry& entry, MayGo may_go) {
  if (!may_go(entry.hash)) return false;
  const Descriptor file(::open(entry.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || !try_lock(file, LOCK_EX, entry.path)) return false;  // in use
  if (unlink(entry.path.c_str()) != 0) fail(entry.path, "cannot remove", errno);
  ++evicted_;
  return true;
}

bool CacheDirectory::make_room(std::int64_t bytes, MayGo may_go, const std::string& besides) {
  const auto all = entries();
  std::int64_t total = bytes;
  for (const auto& entry : all)
    if (entry.hash != besides) total += entry.bytes;
  for (const auto& entry : all) {
    if (total <= most_bytes_) break;
    if (entry.hash != besides && remove(entry, may_go)) total -= entry.bytes;
  }
  return total <= most_bytes_;
}

// Reserves the blocks, so that a full disk is detected before fetching.
void CacheDirectory::reserve(const Descriptor& part, std::int64_t bytes, MayGo may_go,
                             const std::string& hash) {
  if (ftruncate(part.number(), 0) != 0 || ftruncate(part.number(), bytes) != 0)
    fail(path_ / (hash + kPart), "cannot set its size", errno);
  auto all = entries();
  for (auto entry = all.begin();; ++entry) {
    if (fallocate(part.number(), 0, 0, bytes) == 0 || errno == EOPNOTSUPP) return;
    const int error = errno;
    if (error != ENOSPC && error != EDQUOT) fail(path_ / (hash + kPart), "cannot reserve", error);
    // Other programs fill the disk: evict as much as possible.
    while (entry != all.end() && (entry->hash == hash || !remove(*entry, may_go)))
      ++entry;
    if (entry == all.end()) {
      unlink((path_ / (hash + kPart)).c_str());
      fail(path_ / (hash + kPart),
           str("cannot reserve ", human_bytes(static_cast<double>(bytes))).c_str(), error);
    }
  }
}

// Requires the lock of names. Removes a file of another size.
bool CacheDirectory::is_whole(const std::string& hash, std::int64_t bytes) const {
  const auto path = path_ / hash;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) return false;
  if (!file) fail(path, "cannot open", errno);
  const auto size = status_of(file, path).st_size;
  if (size == bytes) return true;
  if (!try_lock(file, LOCK_EX, path))
    throw AccessError(str(path.string(), ": has ", size, " bytes, expected ", bytes,
                          ", and cannot be replaced while it is open"));
  log_own_warning(path.string(), ": has ", size, " bytes, expected ", bytes,
                  "; removing it and fetching it again");
  unlink(path.c_str());
  return false;
}

CacheDirectory::Taken CacheDirectory::take(const std::string& hash, std::int64_t bytes,
                                           MayGo may_go, std::unique_ptr<PartFile>& part) {
  LOCKSTEP_CHECK(is_hash(hash) && bytes > 0, "a shard of hash \"", hash, "\" and ", bytes,
                 " bytes");
  const auto needed = PartFile::file_bytes(bytes);
  if (needed > most_bytes_)
    throw AccessError(str(path_.string(), ": a shard has ", bytes,
                          " bytes, but the cache limit is ", most_bytes_,
                          " bytes; raise data.cache_bytes"));
  const auto names = lock_names(path_);
  if (is_whole(hash, bytes)) return Taken::whole;
  const auto path = path_ / (hash + kPart);
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) fail(path, "cannot create", errno);
  if (!try_lock(file, LOCK_EX, path)) return Taken::elsewhere;
  const auto size = status_of(file, path).st_size;
  if (size != needed && size != bytes) {
    if (!make_room(needed, may_go, hash)) {
      unlink(path.c_str());
      return Taken::no_room;
    }
    reserve(file, needed, may_go, hash);
  }
  part = std::make_unique<PartFile>(path_ / hash, std::move(file), bytes);
  return Taken::here;
}

}  // namespace lockstep
