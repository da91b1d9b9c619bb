// StopSignals catches signals, so that a run finishes its step and saves before it stops.
//
//   SIGINT (Ctrl-C)                        exit code 130
//   SIGTERM, SIGUSR1 (a scheduler's)       exit code 75: restart it to resume
//   SIGHUP (its terminal is gone)          exit code 75, unless ignored, as by nohup
//   the same signal again, except SIGHUP   exits at once with 128 + its number
//
// Different signals are one request: Kubernetes may send SIGTERM to a worker while the launcher
// sends SIGUSR1, Slurm sends SIGUSR1 and then SIGTERM. A repeat within 100 ms is the same request
// too, because timeout(1) and mpirun signal a process and its group. SIGPIPE is ignored, because a
// run outlives the readers of its output.
#pragma once

#include <optional>

namespace lockstep {

inline constexpr int kStoppedByUser = 130;  // exit code

class StopSignals {
 public:
  // Installs the handlers. If another StopSignals exists, this one shares its handlers and signals.
  // `says_so`: print a line at the first signal. One of several ranks does, because the launcher
  // signals all of them.
  explicit StopSignals(bool says_so = true);
  ~StopSignals();  // of the last one: restores the previous handlers
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Exit code of the process after saving; nothing before a signal.
  std::optional<int> exit_code() const;
};

}  // namespace lockstep
