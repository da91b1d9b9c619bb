// Slowdown: factors by which concurrent matmuls and collectives slow each other. Plans use them to
// simulate overlap (StreamCosts). They are not judged.
#pragma once

#include "launch/preflight/preflight_rank.h"
#include "launch/preflight/timed_matmul.h"

namespace lockstep {

struct Slowdown {
  double compute_beside = 0;  // factor of matmuls, at least 1; 0: not measured
  double other_beside = 1;    // factor of collectives, at least 1
};
// Measures a matmul of this shape with all-gathers of 4 MiB in the first group of several ranks
// that moves parameters, and returns the median of all ranks. Without such a group it measures
// nothing.
Slowdown measure_slowdown(PreflightRank& rank, const MatmulShape& shape);

}  // namespace lockstep
