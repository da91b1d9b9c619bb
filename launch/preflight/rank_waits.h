// The time that a rank computes in a step, and the time that it waits for other ranks, from logs of
// its streams of compute and of tensor ranks.
#pragma once

#include <vector>

#include "core/op_log.h"
#include "launch/preflight/preflight_rank.h"

namespace lockstep {

// Time of the operators of a step without collectives, which wait for other ranks; median of steps.
double own_seconds(const std::vector<const OpLog*>& steps);

// Waits at collectives whose results a rank needs at once (tensor parallelism, the sums of a step),
// as a share of own_seconds: mean over ranks of their medians over steps. A collective call.
double wait_share(PreflightRank& rank, const std::vector<const OpLog*>& steps);

}  // namespace lockstep
