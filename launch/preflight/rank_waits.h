// What a rank needs of a step itself, and what it waits for others, of logs of its compute stream.
#pragma once

#include <vector>

#include "core/op_log.h"
#include "launch/preflight/preflight_rank.h"

namespace lockstep {

// Of the operators of a step, whose collectives wait for others: the median over steps.
double own_seconds(const std::vector<const OpLog*>& steps);

// Of that, what a rank waits where it needs others' results at once (tensor parallelism, the sums
// of a step): the mean over ranks of their medians over steps. All ranks at once.
double wait_share(PreflightRank& rank, const std::vector<const OpLog*>& steps);

}  // namespace lockstep
