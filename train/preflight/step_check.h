// Check of steps: some of the configuration's model, on random tokens. Data need not be there.
#pragma once

#include <vector>

#include "core/op_log.h"
#include "train/config.h"
#include "train/plan/operator_times.h"
#include "train/preflight/preflight_rank.h"

namespace lockstep {

struct StepCosts {
  OperatorTimes operators;          // median times of each
  std::int64_t constant_bytes = 0;  // that this process has beyond its arenas
};
// Throws ConfigError where there is no room for the model.
StepCosts check_steps(PreflightRank& rank, const Config& config);

// Of the operators of a step, whose collectives wait for others: the median over steps.
double own_seconds(const std::vector<const OpLog*>& steps);

}  // namespace lockstep
