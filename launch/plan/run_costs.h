// RunCosts: what a run as a whole takes on a Cluster, from the estimate of its step: days,
// checkpoints and how often, goodput where machines fail, energy and price. docs/planning.md has
// each formula with its source; explain() has them with the numbers of one plan.
#pragma once

#include <vector>

#include "launch/plan/estimate.h"
#include "launch/plan/formula.h"

namespace lockstep {

struct RunCosts {
  double step_seconds = 0;  // without what checkpoints take
  double run_seconds = 0;   // of steps alone

  double write_bytes_per_second = 0;  // so that one checkpoint is written when the next begins
  double interruption_seconds = 0;    // M: the mean time between two
  double goodput = 1;                 // share of the time that is training
  // Between checkpoints, with what goodput is then; 0: the cluster does not say how fast it writes.
  double best_interval_seconds = 0, best_goodput = 0;
  std::int64_t best_interval_steps = 0;
  double wall_seconds = 0;  // of the run at the goodput as set

  std::int64_t cache_bytes_per_token = 0;  // of keys and values, in the compute type
  double energy_joules = 0, price = 0;     // 0: not known
};
RunCosts run_costs(const Config& config, const Cluster& cluster, const Estimate& estimate);

std::vector<Formula> explain(const Config& config, const Cluster& cluster,
                             const Estimate& estimate);

}  // namespace lockstep
