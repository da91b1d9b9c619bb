// supervise() is the agent of one host of a supervised run (docs/resilience.md). It finds the other
// agents through the directory of the run, leads them if no other does, and runs the ranks of this
// host until the run is over.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "dist/job/supervise/leader.h"

namespace lockstep {

struct SuperviseOptions {
  std::filesystem::path run;         // directory of the run, which all hosts share
  std::vector<std::string> command;  // "train", ...
  std::string interfaces{};          // LOCKSTEP_INTERFACE
  std::string on_bad_host{};
  LeaderOptions leader;
};

// Returns the exit code of the run.
int supervise(const SuperviseOptions& options);

// The directory in `--run DIR` or `--run=DIR` of a command; throws ConfigError if it has none.
std::string run_of(const std::vector<std::string>& command);

}  // namespace lockstep
