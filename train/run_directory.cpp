#include "train/run_directory.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "checkpoint/directory.h"
#include "core/file.h"
#include "core/log.h"
#include "core/system/machine.h"
#include "dist/job/agent_socket.h"

namespace lockstep {
namespace {

std::string first_line(const std::filesystem::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// The process that holds the lock has written its name into the file.
[[noreturn]] void refuse_second(const std::filesystem::path& run,
                                const std::filesystem::path& lock) {
  const auto who = first_line(lock);
  throw TransientError(str("another process is training in ", run.string(),
                           who.empty() ? "" : str(" (", who, ")"),
                           "; wait for it, or choose another directory with --run"));
}

// trainer_of() and check() of other processes hold the lock for an instant.
bool is_locked_soon(int lock) {
  for (int tries = 0; flock(lock, LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK || tries == 5) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    errno = EWOULDBLOCK;
  }
  return true;
}

}  // namespace

std::optional<std::string> trainer_of(const std::filesystem::path& run) {
  const auto name = run / "lock";
  const Descriptor lock(open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock && errno == ENOENT) return std::nullopt;
  if (!lock) fail_io(name, "cannot open", errno);
  if (flock(lock.number(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return std::nullopt;
  return first_line(name);
}

std::string run_name(const std::filesystem::path& run) {
  const auto whole = std::filesystem::absolute(run).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

RunDirectory::RunDirectory(std::filesystem::path path, bool takes_lock) : path_(std::move(path)) {
  const auto name = lock_path();
  if (!takes_lock) {
    lock_ = Descriptor(open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!lock_ && errno == ENOENT)
      throw DataError(str(path_.string(),
                          ": rank 0 created the directory, but this host does not see it; choose a "
                          "directory that all hosts share with --run"));
    if (!lock_) fail_io(name, "cannot open", errno);
    return;
  }
  is_new_ = !path_exists(path_);
  make_directories(checkpoints());
  lock_ = Descriptor(open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_) fail_io(name, "cannot open for writing", errno);
  if (!is_locked_soon(lock_.number())) {
    // After the loss of a host, a file server may keep the lock of its process for a while. The
    // epoch then keeps that process from changing the run, if it is alive after all.
    const auto& place = place_from_agent();
    if (errno == EWOULDBLOCK && place && place->takes_over)
      log_warning(name.string(), ": still locked for an earlier start; its epoch ends");
    else if (errno == EWOULDBLOCK)
      refuse_second(path_, name);
    else
      throw_io_error(errno, str(name.string(), ": cannot be locked: ", reason(errno),
                                "; choose a directory on another file system with --run"));
  }
  if (!is_named(lock_.number(), name))  // a process that has just ended removed the file
    throw TransientError(
        str(name.string(), ": removed while it was being locked; start the run again"));
  say_who_holds_it();
}

void RunDirectory::check() const {
  std::exception_ptr unreadable;  // perhaps because the directory is being removed
  try {
    check_epoch();
  } catch (const DataError&) {
    unreadable = std::current_exception();
  }
  const auto name = lock_path();
  if (is_named(lock_.number(), name)) {
    if (unreadable) std::rethrow_exception(unreadable);
    return;
  }
  const Descriptor other(open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (other && flock(other.number(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    refuse_second(path_, name);
  std::error_code unknown;
  const auto now =
      std::filesystem::read_symlink(str("/proc/self/fd/", lock_.number()), unknown).string();
  // NFS renames a file that is removed while it is open (.nfs...).
  const bool is_moved = std::filesystem::path(now).filename() == name.filename();
  throw DataError(str(path_.string(),
                      ": the run directory was removed, moved or replaced while the run trained in "
                      "it: expected the run's own ",
                      name.filename().string(), ", which is ",
                      is_moved ? str("now ", now, "; move the directory back")
                               : std::string("gone; restore the directory with its checkpoints"),
                      ", or choose another one with --run"));
}

// Writes the holder's name for people. The lock itself ends with the process.
void RunDirectory::say_who_holds_it() const {
  const auto who = str("pid ", getpid(), " on host ", host_name(), "\n");
  if (ftruncate(lock_.number(), 0) == 0) [[maybe_unused]]
    const auto written = write(lock_.number(), who.data(), who.size());
}

RunDirectory::~RunDirectory() {
  if (is_new_) remove_unused();
}

// Removes what this start has created, unless there is a checkpoint or another start took over.
void RunDirectory::remove_unused() const {
  std::error_code not_empty;
  try {
    check_epoch();
    if (named_steps(checkpoints()).empty())
      std::filesystem::remove_all(checkpoints() / "epochs", not_empty);
  } catch (const Error&) {  // the directory stays
    return;
  }
  if (std::filesystem::remove(checkpoints(), not_empty)) {
    std::filesystem::remove_all(tokenizer(), not_empty);
    std::filesystem::remove(path_ / "lock", not_empty);
    std::filesystem::remove(amendments(), not_empty);
    for (std::filesystem::directory_iterator at(path_, not_empty), end; !not_empty && at != end;
         at.increment(not_empty))  // the file for Prometheus, which may have any name
      if (at->path().extension() == ".prom") std::filesystem::remove(at->path(), not_empty);
    std::filesystem::remove(path_, not_empty);
  }
}

}  // namespace lockstep
