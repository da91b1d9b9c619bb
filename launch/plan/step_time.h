// StepTime: how long a recorded step takes, by what its compute stream does or waits for, when each
// call takes what `price` says. Streams run beside each other as they were told to wait; what runs
// beside compute slows it, and is slowed.
#pragma once

#include "core/component.h"
#include "core/function_ref.h"
#include "launch/plan/step_program.h"

namespace lockstep {

struct StreamCosts {
  static constexpr auto kNotSlowed = [](const Op& /*op*/) { return 1.0; };

  // Of a call alone.
  FunctionRef<double(const Op& op)> seconds;
  // How many times longer a call takes while others run beside it: of the compute stream while `op`
  // runs on another one (of several, what slows it most); and of the others while compute runs.
  FunctionRef<double(const Op& op)> compute_beside = kNotSlowed;
  double other_beside = 1;
  // Ranks are never equally fast: of what compute has done itself since it last met others in a
  // collective, the part that it waits for them at the next one.
  double wait_share = 0;
  // What the host needs to give a stream a call, of a GPU, which runs behind it; 0: it is never
  // late. A CPU's compute stream is the host.
  double launch_seconds = 0;
  bool host_computes = false;
};

StepTime step_time(const StepProgram& program, const StreamCosts& costs);

}  // namespace lockstep
