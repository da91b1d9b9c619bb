#include "data/pack_directory.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/log.h"
#include "data/output_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "lock";
constexpr const char* kCommand = "command.json";
constexpr const char* kProgress = "progress.json";
constexpr const char* kDataset = "dataset";
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

// What the first member that is not the same is; empty: none.
std::string difference(const Json& before, const Json& now) {
  for (const auto& [name, value] : now.as_object()) {
    const auto* old = before.find(name);
    const auto was = old == nullptr ? "nothing" : old->dump();
    if (was == value.dump()) continue;
    if (!value.is_array() || old == nullptr || !old->is_array())
      return str(name, " was ", was, ", now ", value.dump());
    const auto &files = old->as_array(), &inputs = value.as_array();
    for (std::size_t i = 0; i < std::min(files.size(), inputs.size()); ++i)
      if (files[i].dump() != inputs[i].dump())
        return str("an input was ", files[i].dump(), ", now ", inputs[i].dump());
    return str("there were ", files.size(), " inputs, now ", inputs.size());
  }
  return {};
}

// What packing puts there, and what write_text calls it before.
bool is_of_packing(const std::string& name) {
  return name == kLock || name == kDataset || name == kCommand || name == kProgress ||
         name.starts_with(str(kCommand, ".tmp-")) || name.starts_with(str(kProgress, ".tmp-"));
}

// All in it is removed in the end.
void refuse_foreign(const fs::path& work) {
  if (!path_exists(work)) return;
  const auto entries = directory_entries(work);
  const auto holds = [&](const char* name) {
    return std::find(entries.begin(), entries.end(), work / name) != entries.end();
  };
  const auto foreign = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
    return !is_of_packing(entry.filename()) || !holds(kLock) ||
           (entry.filename() == kDataset && !holds(kCommand));
  });
  if (foreign == entries.end()) return;
  throw UsageError(str(work.string(), ": holds ", foreign->filename().string(),
                       ", which packing did not put there; packing works in a directory of this "
                       "name, and removes it: move it away, or choose another --out"));
}

}  // namespace

fs::path PackDirectory::work_of(const fs::path& out) {
  return str(out.string(), ".tmp");
}

fs::path PackDirectory::dataset() const {
  return work_ / kDataset;
}

fs::path PackDirectory::record_path() const {
  return work_ / kProgress;
}

PackDirectory::PackDirectory(fs::path out, const Json& command, bool resumable)
    : out_(std::move(out)), work_(work_of(out_)), resumable_(resumable) {
  refuse_taken(out_);
  refuse_foreign(work_);
  make_directories(work_);
  lock();
  try {
    refuse_taken(out_);  // by one that has just ended
    find_record(command);
  } catch (...) {
    unlock();
    throw;
  }
  if (record_) return;
  try {
    start(command);
  } catch (...) {
    remove();
    throw;
  }
}

PackDirectory::~PackDirectory() {
  if (lock_ < 0) return;
  if (saved_) {
    log_warning(work_.string(),
                ": keeps what is done; the same command goes on from there; remove it to begin "
                "anew");
    unlock();
  } else {
    remove();
  }
}

void PackDirectory::remove() {
  std::string wrong;
  const auto take_away = [&](const fs::path& path) {
    std::error_code error;
    fs::remove(path, error);
    if (error && wrong.empty()) wrong = error.message();
  };
  try {
    forget();
    for (const auto& entry : directory_entries(work_))
      if (is_of_packing(entry.filename()) && entry.filename() != kLock) take_away(entry);
    take_away(work_ / kLock);  // without it the rest would be somebody's
    take_away(work_);
  } catch (const Error& error) {
    wrong = error.what();
  }
  if (!wrong.empty()) log_warning(work_.string(), ": cannot remove it: ", wrong);
  unlock();
}

void PackDirectory::lock() {
  const auto path = work_ / kLock;
  lock_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0)
    throw DataError(
        str(path.string(), ": cannot create: ", std::generic_category().message(errno)));
  const bool held = flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  // One that ended meanwhile has removed it.
  struct stat here {};
  struct stat there {};
  if (held && fstat(lock_, &here) == 0 && stat(path.c_str(), &there) == 0 &&
      here.st_ino == there.st_ino)
    return;
  unlock();
  throw UsageError(str(work_.string(), ": another process is packing into it"));
}

void PackDirectory::unlock() {
  close(std::exchange(lock_, -1));
}

void PackDirectory::find_record(const Json& command) {
  if (!path_exists(dataset())) return;
  if (!path_exists(work_ / kProgress)) {
    if (!resumable_)
      log_info(work_.string(),
               ": begins anew: standard input and pipes cannot be gone on with "
               "where they were left");
    return;
  }
  const auto path = work_ / kCommand;
  const auto before = Json::parse(read_text(path, kMostBytes), path.string());
  if (const auto changed = difference(before, command); !changed.empty())
    throw UsageError(str(work_.string(), ": holds what another command has done (", changed,
                         "); give that command to go on, or remove the directory to begin anew"));
  const auto progress = work_ / kProgress;
  record_ = PackRecord::parse(read_text(progress, kMostBytes), progress.string());
  saved_ = true;
  remove_unfinished();
}

// What stands beside the shards when all are full: where that was cut short, also under the names
// that files have before they are complete.
void PackDirectory::remove_unfinished() const {
  std::error_code error;
  std::vector<fs::path> beside;
  fs::recursive_directory_iterator it(dataset(), error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const auto kind = it->path().extension();
    if (!it->is_directory(error) && kind != ".bin" && kind != ".ends" && kind != ".mask")
      beside.push_back(it->path());
  }
  for (auto path = beside.begin(); !error && path != beside.end(); ++path)
    fs::remove(*path, error);
  if (error)
    throw DataError(str(dataset().string(),
                        ": cannot remove what an end that was cut short left: ", error.message()));
}

// In an order in which what is there can be gone on from, or is known as packing's, at any time.
void PackDirectory::forget() const {
  std::error_code error;
  fs::remove(work_ / kProgress, error);  // first: what it speaks of goes
  sync_directory(work_);
  fs::remove_all(dataset(), error);
  if (error) throw DataError(str(dataset().string(), ": cannot remove it: ", error.message()));
  sync_directory(work_);
}

void PackDirectory::start(const Json& command) {
  forget();
  write_text(work_ / kCommand, command.dump(2) + "\n");
  make_directories(dataset());
}

void PackDirectory::save(const std::string& record) {
  if (!resumable_) return;
  write_text(work_ / kProgress, record);
  saved_ = true;
}

void PackDirectory::commit() {
  rename_durably(dataset(), out_);
  abandon();  // the destructor removes what is left
}

}  // namespace lockstep
