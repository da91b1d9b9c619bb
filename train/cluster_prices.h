// ClusterPrices: the seconds of a call on a Cluster: as measured there, else as its hardware is
// priced. docs/planning.md says in which order.
#pragma once

#include "train/cluster.h"
#include "train/prices.h"
#include "train/step_program.h"
#include "train/step_time.h"

namespace lockstep {

class ClusterPrices {
 public:
  explicit ClusterPrices(const Cluster& cluster);  // which outlives it

  // Of a call that has its rank to itself. place: of a collective, its group's.
  double seconds(const Op& op, const GroupPlace& place) const;
  // How many times longer compute takes beside it.
  double compute_beside(const Op& op, const GroupPlace& place) const;

  // Of the step, without data and checkpoints.
  StepTime step(const StepProgram& program) const;

 private:
  double collective_seconds(const Op& op, const GroupPlace& place) const;
  double cpu_seconds(const Op& op) const;

  const Cluster& cluster_;
  Prices prices_;
};

}  // namespace lockstep
