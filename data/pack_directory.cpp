#include "data/pack_directory.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "data/output_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommand = "command.json";
constexpr const char* kProgress = "progress.json";
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

}  // namespace

PackDirectory::PackDirectory(fs::path out, const Json& command, bool resumable)
    : out_(std::move(out)), work_(str(out_.string(), ".tmp")), resumable_(resumable) {
  refuse_taken(out_);
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
  std::error_code error;
  fs::remove_all(work_, error);
  if (error) log_warning(work_.string(), ": cannot remove it: ", error.message());
  unlock();
}

void PackDirectory::lock() {
  const auto path = work_ / "lock";
  lock_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0)
    throw DataError(
        str(path.string(), ": cannot create: ", std::generic_category().message(errno)));
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  unlock();
  throw UsageError(str(work_.string(), ": another process is packing into it"));
}

void PackDirectory::unlock() {
  close(std::exchange(lock_, -1));
}

void PackDirectory::find_record(const Json& command) {
  if (!path_exists(work_ / kProgress) || !path_exists(dataset())) return;
  if (!resumable_) {
    log_info(work_.string(),
             ": begins anew: standard input and pipes cannot be gone on with where they were left");
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
  // What a process was about to write when it was killed.
  for (const auto& entry : fs::recursive_directory_iterator(dataset()))
    if (entry.path().filename().string().find(".tmp-") != std::string::npos)
      fs::remove(entry.path());
}

void PackDirectory::start(const Json& command) {
  std::error_code error;
  fs::remove(work_ / kProgress, error);  // first: what it speaks of goes
  sync_directory(work_);
  fs::remove_all(dataset(), error);
  if (error) throw DataError(str(dataset().string(), ": cannot remove it: ", error.message()));
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
