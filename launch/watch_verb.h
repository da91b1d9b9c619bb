// `lockstep watch`.
#pragma once

#include <string>

namespace lockstep {

struct WatchVerbOptions {
  std::string run;  // its directory, which need not be there yet
};

// Shows a run while it goes on, until q or Ctrl-C, whose exit code it returns; where standard
// output is no terminal, what is known now, once. Throws DataError where the run cannot be read,
// and without a terminal where it has done no step.
int run_watch(const WatchVerbOptions& options);

}  // namespace lockstep
