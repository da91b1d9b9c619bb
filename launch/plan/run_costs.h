// RunCosts: duration, checkpoint interval, goodput with interruptions, energy and price of a run on
// a Cluster, from the estimate of its step. docs/planning.md has each formula with its source;
// explain() gives them with the numbers of a plan.
#pragma once

#include <vector>

#include "launch/plan/estimate.h"
#include "launch/plan/formula.h"

namespace lockstep {

// Checkpoints in checkpoint.local_directory; all zero without one.
struct LocalSaves {
  std::int64_t bytes = 0;  // of a host, in one checkpoint
  std::int64_t kept_bytes =
      0;  // of a host: two checkpoints, and with partner_copies two of another
  double interval_seconds = 0;  // whole steps; at least as long as a save
  double save_seconds = 0;      // from the start of a save until the partner has it too
  double stall_seconds = 0;     // mean per save, with the share of saves to the run's directory
  double network_share = 0;     // of a host's NICs, for partner copies
  double lost_seconds = 0;      // mean loss of an interruption: half an interval, a save, a restart

  // Whether these checkpoints survive the loss of a host, because its partner has a copy.
  bool survive() const { return kept_bytes > 2 * bytes; }
};

struct RunCosts {
  double step_seconds = 0;  // time of a step without checkpoints
  double run_seconds = 0;   // time of all steps

  double write_bytes_per_second = 0;  // rate that finishes a checkpoint before the next one
  double interruption_seconds = 0;    // M: mean time between interruptions
  // Share of the time spent on training. An interruption loses the steps after the newest local
  // checkpoint if these survive(), otherwise those after the newest one in the run's directory.
  double goodput = 1;
  // Best interval of checkpoints in the run's directory, and its goodput if only they survive; 0:
  // the write rate of the cluster is unknown.
  double best_interval_seconds = 0, best_goodput = 0;
  std::int64_t best_interval_steps = 0;
  double last_save_seconds = 0;  // from the last step to the end of its checkpoint
  double wall_seconds = 0;       // duration of the run, with interruptions and the last checkpoint

  LocalSaves local;

  std::int64_t cache_bytes_per_token = 0;  // KV cache, in the compute type
  double energy_joules = 0, price = 0;     // 0: unknown
};
// run_seconds: time of the training steps, if not all of them are as `estimate`
RunCosts run_costs(const Config& config, const Cluster& cluster, const Estimate& estimate,
                   std::optional<double> run_seconds = std::nullopt);

std::vector<Formula> explain(const Config& config, const Cluster& cluster, const Estimate& estimate,
                             std::optional<double> run_seconds = std::nullopt);

}  // namespace lockstep
