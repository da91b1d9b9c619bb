// The step check runs some steps of the configured model on random tokens. It needs no data.
#pragma once

#include "launch/plan/operator_times.h"
#include "launch/preflight/preflight_rank.h"
#include "train/config.h"

namespace lockstep {

struct StepCosts {
  OperatorTimes operators;          // median time of each
  double wait_share = 0;            // see StreamCosts
  std::int64_t constant_bytes = 0;  // memory of this process besides its arenas
};
// Throws ConfigError if the model does not fit in memory.
void require_room_for_steps(const PreflightRank& rank, const Config& config);

// `slowest`: see check_collectives. If steps would take minutes because of it, the result is a
// finding instead. Throws ConfigError if the model does not fit in memory.
StepCosts check_steps(PreflightRank& rank, const Config& config, double slowest);

}  // namespace lockstep
