// Check of steps: some of the configuration's model, on random tokens. Data need not be there.
#pragma once

#include "launch/plan/operator_times.h"
#include "launch/preflight/preflight_rank.h"
#include "train/config.h"

namespace lockstep {

struct StepCosts {
  OperatorTimes operators;          // median times of each
  double wait_share = 0;            // as of StreamCosts
  std::int64_t constant_bytes = 0;  // that this process has beyond its arenas
};
// Throws ConfigError where there is no room for the model.
void require_room_for_steps(const PreflightRank& rank, const Config& config);

// slowest: as of check_collectives; where steps would take minutes for it, that is a finding
// instead. Throws ConfigError where there is no room for the model.
StepCosts check_steps(PreflightRank& rank, const Config& config, double slowest);

}  // namespace lockstep
