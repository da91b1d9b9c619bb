// Computes the time of a recorded step on a Cluster, without waits for data and checkpoints. Calls
// have their measured times, or else the estimates of ClusterTimes. Concurrent calls slow each
// other by measured factors, or else by factors known for the hardware (docs/planning.md).
#pragma once

#include "launch/plan/cluster.h"
#include "launch/plan/step_program.h"
#include "launch/plan/step_time.h"

namespace lockstep {

struct CallTime {
  double seconds = 0;        // time of a call alone
  bool is_measured = false;  // measured on the cluster; otherwise estimated
};

// CallTimes gives the times of the calls of one program. Cluster and program outlive it.
class CallTimes {
 public:
  CallTimes(const Cluster& cluster, const StepProgram& program);
  CallTime alone(const Op& op) const;
  Formula explain(const Op& op) const;  // the formula of the estimate of a call alone
  CollectiveCall call(const Op& op) const;
  // Share of the time of a collective in which the NIC is busy.
  double network_share(const Op& op) const;
  // Time of the host to launch a call on a GPU.
  double launch_seconds(const Op& op) const;
  // Slowdown factor of compute while `op` runs.
  double compute_beside(const Op& op) const;

 private:
  const Cluster& cluster_;
  const StepProgram& program_;
  ClusterTimes time_model_;
  TimeModel gpu_prices_;
};

StepTime step_time_on(const Cluster& cluster, const StepProgram& program);

}  // namespace lockstep
