// RestartPhases: the parts of a restart. It lasts from the last step before it in the ledger to the
// first step of the new start. Each second is in one phase.
#pragma once

#include <array>
#include <string>
#include <utility>

#include "dist/job/agent_socket.h"

namespace lockstep {

// Measured parts of the time from the start of rank 0's process to its first step, in seconds.
struct StartSeconds {
  double meet = 0;  // until all ranks are connected
  double load = 0;  // of the checkpoint, with --verify-resume
  friend bool operator==(const StartSeconds&, const StartSeconds&) = default;
};

struct RestartPhases {
  // The time until rank 0's process starts is `stopped`, or, if a leader measured the restart, the
  // next three.
  double stopped = 0;
  double detect = 0;   // until the first rank ended, with steps that no line has
  double judge = 0;    // see RestartSeconds
  double prepare = 0;  // see RestartSeconds
  double meet = 0;     // see StartSeconds
  double setup = 0;    // memory, data, process groups; all of the start if nothing was measured
  double load = 0;     // see StartSeconds

  // Divides `seconds`, from the last step to the start of rank 0's process. Clocks of two hosts may
  // differ, so `measured` may be longer than `seconds`. It is then cut to fit.
  void add_gap(double seconds, const RestartSeconds& measured);
  // Divides `seconds`, from the start of rank 0's process to its first step, in the same way.
  void add_start(double seconds, const StartSeconds& measured);

  std::array<std::pair<const char*, double>, 7> parts() const;  // "stopped", its seconds; ...
  double total() const;
};

// "restart: 5.73 s without a step: detect 4.95 s, judge 120 ms, ..."; without phases of 0 s.
std::string in_words(const RestartPhases& phases);

}  // namespace lockstep
