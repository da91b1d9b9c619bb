// spawn() starts another program in a process group of its own, which Ctrl-C does not reach. It has
// no blocked signals, whatever this process has blocked.
#pragma once

#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace lockstep {

struct SpawnOptions {
  // "NAME=VALUE", besides those of this process. LOCKSTEP_SECRET is not passed on.
  std::vector<std::string> variables{};
  int input = -1;                      // standard input; -1: none
  std::pair<int, int> passed{-1, -1};  // a descriptor of this process, and its number there
  bool hides_errors = false;           // standard error goes nowhere
};

// `words.front()` is the program, found as a shell does. Returns the id of the process. Throws
// TransientError if it cannot be started.
pid_t spawn(const std::vector<std::string>& words, const SpawnOptions& options);

}  // namespace lockstep
