// Disk simulates the files on a disk after a power loss.
//
// disk.cpp defines the calls by which a process changes files (open, mkdir, write, pwrite,
// ftruncate, fsync, fdatasync, close, rename, remove, unlink, unlinkat) and reads them (pread,
// posix_fadvise). They call the C library. During the lifetime of a Disk, calls for its directory
// are recorded, and can be made to fail or to end the process. fsync is only recorded. From the
// record, the files at any moment can be built, with only the data that a disk must keep, or with
// any part of the other data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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
    open,  // of an existing file or of a directory
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

  // Until mend(), call number `call` fails with that errno; with `stays`, all later calls too.
  // kShortWrite: only half is written.
  void fail(std::size_t call, int error, bool stays = false);
  void mend();
  static constexpr int kShortWrite = 0;

  // Each thread counts its own calls. At number `call` of this thread SIGKILL ends the process:
  // before the call, or within it. Within a write half of it is done, within other calls all.
  enum class Death : std::uint8_t { before, within };
  static void kill_at(std::size_t call, Death death);
  static std::size_t calls_of_this_thread();
  // Until the test ends: an existing directory is replaced although it has contents, or an existing
  // file is removed before the new one gets its name.
  enum class Rename : std::uint8_t { correct, overwrites, removes_first };
  static void set_rename(Rename rename);
  // The same, counted over all threads.
  static void kill_process_at(std::size_t call, Death death);
  // At call number `call` of this thread, calls act() before it, as if the process was stopped
  // there and another one ran meanwhile. act() must not throw. It may refer to what outlives the
  // Disk of this thread.
  static void interrupt_at(std::size_t call, std::function<void()> act);

  // The losses if the power goes off after the first `calls` calls:
  enum class Loss : std::uint8_t {
    all,      // unsynced names and bytes
    order,    // the same, except that a removal is kept and earlier changes are lost
    bytes,    // a new name is kept, but not the bytes of its file
    nothing,  // only the process ended
  };
  static constexpr Loss kLosses[] = {Loss::all, Loss::order, Loss::bytes, Loss::nothing};
  // The files after the loss: the bytes of each file by its path; nullopt for a directory.
  using Rest = std::map<std::string, std::optional<std::string>>;
  Rest rest(std::size_t calls, Loss loss) const;
  // `random` draws which unsynced data the disk kept, in any order: each name; a write as a whole,
  // or some of its blocks of 512 or 4096 bytes. Lost blocks have zeros or the previous bytes.
  Rest rest(std::size_t calls, std::mt19937_64& random) const;

  // For disk.cpp. "": the path is not below the root.
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

// Calls check(calls, path) for each moment and each kind of loss. `path` holds the files that may
// be left after `calls` calls.
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
