// Disk: what a disk may hold after the power went off.
//
// The calls by which a process changes files (open, mkdir, write, pwrite, ftruncate, fsync,
// fdatasync, close, rename, remove, unlink, unlinkat) and those by which it reads them (pread,
// posix_fadvise) are defined in disk.cpp. They go on to the C library; while a Disk lives, those
// that concern its directory are written down, and can be made to fail, or to end the process. From
// the list, any moment of the past can be built up again, with only what a disk had to keep of it,
// or any part of the rest too. fsync itself is only noted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep::testing {

class Disk {
 public:
  // `root`: an empty directory that stays. One Disk at a time; paths through root() are observed.
  explicit Disk(const std::filesystem::path& root);
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  ~Disk();

  enum class Action : std::uint8_t {
    open,  // of a file that is there, or of a directory
    create,
    make_directory,
    write,
    truncate,
    sync,
    failed_sync,
    close,
    rename,
    remove,
    read,
    drop_cache,
    failed  // nothing happened
  };
  struct Call {
    Action action;
    std::string path, to = {};  // relative to the root; `to`: of a rename
    std::int64_t offset = 0;    // of a write; the new size of a truncated file
    std::string bytes = {};     // written
    std::int64_t count = 0;     // of bytes read
  };
  const std::filesystem::path& root() const { return root_; }
  const std::vector<Call>& calls() const { return calls_; }

  // From now on, call number `call` fails with that errno, and all behind it where the fault stays,
  // until mend(). kShortWrite: only half is written.
  void fail(std::size_t call, int error, bool stays = false);
  void mend();
  static constexpr int kShortWrite = 0;

  // Each thread counts its own calls. At number `call` of this one SIGKILL ends the process: before
  // the call, or within it: half of a write is done, and all of what else it is.
  enum class Death : std::uint8_t { before, within };
  static void kill_at(std::size_t call, Death death);
  static std::size_t calls_of_this_thread();
  // The same, of all threads together.
  static void kill_process_at(std::size_t call, Death death);

  // The power goes off behind the first `calls` calls. What may be lost:
  enum class Loss : std::uint8_t {
    all,      // names and bytes that were not synced
    order,    // the same, but a removal outlives what came before it
    bytes,    // a name outlives the bytes that it was given to
    nothing,  // only the process ended
  };
  static constexpr Loss kLosses[] = {Loss::all, Loss::order, Loss::bytes, Loss::nothing};
  // What is left: the bytes of each file by its path, nothing of a directory.
  using Rest = std::map<std::string, std::optional<std::string>>;
  Rest rest(std::size_t calls, Loss loss) const;
  // Of what was not synced `random` draws what the disk kept, in any order: names one by one;
  // writes whole, or of blocks of 512 or 4096 bytes some, with zeros or what was before in the
  // others.
  Rest rest(std::size_t calls, std::mt19937_64& random) const;

  // Of disk.cpp. Of a path that is not below the root: "".
  std::string relative(const std::filesystem::path& path) const;
  template <class Act>
  auto run(Call call, const Act& act);

 private:
  std::filesystem::path root_;
  std::mutex mutex_;
  std::vector<Call> calls_;
  std::size_t failing_ = SIZE_MAX;
  int error_ = 0;
  bool stays_ = false;
};

void write_rest(const Disk::Rest& rest, const std::filesystem::path& into);  // emptied before

// check(calls, path), with the files that `calls` calls may leave in `path`, for each moment and
// each kind of loss.
template <class Check>
void at_every_moment(const Disk& disk, const std::filesystem::path& into, const Check& check) {
  const auto& calls = disk.calls();
  for (const auto loss : Disk::kLosses) {
    Disk::Rest written;
    for (std::size_t n = 0; n <= calls.size(); ++n) {
      SCOPED_TRACE(str("loss ", static_cast<int>(loss), " behind ", n, " of ", calls.size(),
                       " calls, the last on ", n > 0 ? calls[n - 1].path : ""));
      if (auto rest = disk.rest(n, loss); n == 0 || rest != written) {
        write_rest(rest, into);
        written = std::move(rest);
      }
      check(n, into);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace lockstep::testing
