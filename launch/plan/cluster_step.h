// What a recorded step takes on a Cluster, without what it waits for data and checkpoints: calls as
// measured there, else as ClusterPrices has them; what runs beside them slows them as measured,
// else as the hardware is known for (docs/planning.md).
#pragma once

#include "launch/plan/cluster.h"
#include "launch/plan/step_program.h"
#include "launch/plan/step_time.h"

namespace lockstep {

struct CallTime {
  double seconds = 0;        // of a call alone
  bool is_measured = false;  // on the cluster; else it is a price
};

// Of calls of one program. Cluster and program must outlive it.
class CallTimes {
 public:
  CallTimes(const Cluster& cluster, const StepProgram& program);
  CallTime alone(const Op& op) const;
  Formula explain(const Op& op) const;  // what the price of a call alone comes from
  // How many times longer compute takes beside `op`.
  double compute_beside(const Op& op) const;

 private:
  GroupPlace place_of(const Op& op) const;

  const Cluster& cluster_;
  const StepProgram& program_;
  ClusterPrices prices_;
  Prices gpu_prices_;
};

StepTime step_time_on(const Cluster& cluster, const StepProgram& program);

}  // namespace lockstep
