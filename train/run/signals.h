// StopSignals: a run that is asked to stop finishes its step and saves.
//
//   SIGINT (Ctrl-C)                        exit code 130
//   SIGTERM, SIGUSR1 (a scheduler's)       exit code 75: start it again, it goes on
//   SIGHUP (its terminal is gone)          exit code 75, unless it is ignored, as by nohup
//   a second one, but for SIGHUP           ends the process at once with 128 + its number
//
// SIGPIPE is ignored: a run outlives those who read its output. A repeat within 100 ms is the same
// request: timeout(1) and mpirun deliver a signal to a process and to its group.
#pragma once

#include <optional>

namespace lockstep {

class StopSignals {
 public:
  // Takes the signals; one at a time may exist. `says_so`: at the first one; of several ranks,
  // which all get it from their launcher, one does.
  explicit StopSignals(bool says_so = true);
  ~StopSignals();  // gives them back
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // What the process should exit with after saving; nothing while no signal came.
  std::optional<int> exit_code() const;
};

}  // namespace lockstep
