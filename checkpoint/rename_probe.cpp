#include "checkpoint/rename_probe.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <future>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/file.h"
#include "core/start_thread.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kRacers = 4;

// Empty files, which need no space on a full disk.
void make_file(const fs::path& name) {
  const Descriptor file(open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!file) fail_io(name, "cannot create", errno);
}

void make_racer(const fs::path& directory) {
  if (mkdir(directory.c_str(), 0777) != 0) fail_io(directory, "cannot create the directory", errno);
  make_file(directory / "file");
}

[[noreturn]] void refuse(const fs::path& directory, const std::string& problem) {
  throw ConfigError(str(directory.string(), ": ", problem,
                        ", so checkpoints are not safe on this file system; choose a directory on "
                        "another one with --run"));
}

// Lets waiting threads go on, also after an error.
struct SetAtEnd {
  std::atomic<bool>& flag;
  ~SetAtEnd() { flag = true; }
};

// Several threads rename a directory to one name, as starts that claim an epoch do.
void check_exclusive(const fs::path& place, const fs::path& shown) {
  for (int i = 0; i <= kRacers; ++i)
    make_racer(place / std::to_string(i));
  std::atomic<bool> begin = false;
  std::atomic<int> winners = 0;
  const auto race = [&](int i) {
    const auto from = place / std::to_string(i), to = place / "winner";
    if (rename(from.c_str(), to.c_str()) == 0) ++winners;
  };
  {
    std::vector<std::future<void>> racers;
    const SetAtEnd go{begin};
    for (int i = 0; i < kRacers; ++i)
      racers.push_back(start_task([&, i] {
        while (!begin)
          std::this_thread::yield();
        race(i);
      }));
  }
  race(kRacers);  // too late
  if (winners == 0 || !path_exists(place / "winner/file"))
    refuse(shown, "a directory cannot be renamed");
  if (winners > 1) refuse(shown, "several directories can be renamed to the same name");
}

// A thread opens a file while another one replaces it.
void check_atomic(const fs::path& place, const fs::path& shown) {
  constexpr int kTimes = 16;
  const auto name = place / "file", next = place / "next";
  make_file(name);
  std::atomic<bool> reading = false, done = false;
  int absent = 0, failed = 0;
  {
    auto reader = start_task([&] {
      do {
        absent += Descriptor(open(name.c_str(), O_RDONLY | O_CLOEXEC)) ? 0 : 1;
        reading = true;
      } while (!done);
    });
    const SetAtEnd end{done};
    while (!reading)
      std::this_thread::yield();
    for (int i = 0; i < kTimes; ++i) {
      make_file(next);
      failed += rename(next.c_str(), name.c_str()) == 0 ? 0 : 1;
    }
    done = true;
    reader.get();
  }
  if (failed > 0) refuse(shown, "a file cannot replace another one by a rename");
  if (absent > 0) refuse(shown, "a file is absent for a while when another one replaces it");
}

}  // namespace

void check_renames(const fs::path& place, const fs::path& shown) {
  if (mkdir(place.c_str(), 0777) != 0) fail_io(place, "cannot create the directory", errno);
  check_exclusive(place, shown);
  check_atomic(place, shown);
  remove_tree(place);
}

}  // namespace lockstep
