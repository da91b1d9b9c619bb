#include "train/run_directory.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "core/file.h"
#include "core/machine.h"

namespace lockstep {

std::string run_name(const std::filesystem::path& run) {
  const auto whole = std::filesystem::absolute(run).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

RunDirectory::RunDirectory(std::filesystem::path path, bool takes_lock) : path_(std::move(path)) {
  if (!takes_lock) {
    if (!path_exists(checkpoints()))
      throw DataError(str(path_.string(),
                          ": rank 0 made it, and it is not here; choose a directory that all hosts "
                          "share with --run"));
    return;
  }
  is_new_ = !path_exists(path_);
  make_directories(checkpoints());
  const auto name = path_ / "lock";
  lock_ = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0)
    throw DataError(
        str("cannot write in the run directory ", path_.string(), ": ", std::strerror(errno)));
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) {
    say_who_holds_it();
    return;
  }
  const int reason = errno;
  close(lock_);
  if (reason != EWOULDBLOCK)
    throw DataError(str("cannot lock ", name.string(), ": ", std::strerror(reason),
                        "; choose a directory on another file system with --run"));
  std::string who;
  std::getline(std::ifstream(name), who);
  throw TransientError(str("another process trains in ", path_.string(),
                           who.empty() ? "" : str(" (", who, ")"),
                           "; wait for it, or choose another directory with --run"));
}

// For people: what counts is the lock, which goes with the process.
void RunDirectory::say_who_holds_it() const {
  const auto who = str("pid ", getpid(), " on host ", host_name(), "\n");
  if (ftruncate(lock_, 0) == 0) [[maybe_unused]]
    const auto written = write(lock_, who.data(), who.size());
}

RunDirectory::~RunDirectory() {
  std::error_code not_empty;
  if (is_new_ && std::filesystem::remove(checkpoints(), not_empty)) {
    std::filesystem::remove_all(tokenizer(), not_empty);
    std::filesystem::remove(path_ / "lock", not_empty);
    for (std::filesystem::directory_iterator at(path_, not_empty), end; !not_empty && at != end;
         at.increment(not_empty))  // what Prometheus reads, whatever it is called
      if (at->path().extension() == ".prom") std::filesystem::remove(at->path(), not_empty);
    std::filesystem::remove(path_, not_empty);
  }
  if (lock_ >= 0) close(lock_);
}

}  // namespace lockstep
