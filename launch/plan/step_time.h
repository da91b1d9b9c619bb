// step_time computes the duration of a recorded step, by what its compute stream does or waits for,
// from the estimated or measured time of each call. Streams run concurrently, with the waits of the
// recording and those of NCCL's launch order. Calls on other streams slow compute, and compute
// slows them.
#pragma once

#include "core/component.h"
#include "core/function_ref.h"
#include "launch/plan/step_program.h"

namespace lockstep {

struct StreamCosts {
  static constexpr auto kNotSlowed = [](const Op& /*op*/) { return 1.0; };
  static constexpr auto kNoOrder = [](const Op& /*op*/) { return false; };
  static constexpr auto kAtOnce = [](const Op& /*op*/) { return 0.0; };
  static constexpr auto kNoNetwork = [](const Op& /*op*/) { return 0.0; };

  // Time of a call alone.
  FunctionRef<double(const Op& op)> seconds;
  // Slowdown factors of concurrent calls: of compute while `op` runs on another stream (with
  // several, the largest counts), and of the other streams while compute runs.
  FunctionRef<double(const Op& op)> compute_beside = kNotSlowed;
  double other_beside = 1;
  // Ranks are never equally fast. Share of the compute time since the last collective of the groups
  // `tensor` and `all` that a rank waits for others at the next one.
  double wait_share = 0;
  // Time of the host to launch a call on a GPU, which runs after it; 0: the host is never late. On
  // a CPU the compute stream is the host itself.
  FunctionRef<double(const Op& op)> launch_seconds = kAtOnce;
  bool host_computes = false;
  // Whether a call extends NCCL's launch order. A collective begins only after the last such call
  // before it in program order, on any stream, has begun.
  FunctionRef<bool(const Op& op)> extends_order = kNoOrder;
  // Share of the time of a collective in which the NIC is busy. Concurrent calls share the NIC.
  FunctionRef<double(const Op& op)> network_share = kNoNetwork;
};

StepTime step_time(const StepProgram& program, const StreamCosts& costs);

}  // namespace lockstep
