// Slowdown: how much longer products and collectives take beside each other, by which a plan lets
// them overlap (StreamCosts). Nothing judges it.
#pragma once

#include "launch/preflight/preflight_rank.h"
#include "launch/preflight/timed_product.h"

namespace lockstep {

struct Slowdown {
  double compute_beside = 0;  // of products: at least 1; 0: not measured
  double other_beside = 1;    // of collectives, at least 1
};
// Of a product of this shape and all-gathers of 4 MiB in the first group of several ranks that
// moves parameters: the median of all ranks. Not measured where there is no such group.
Slowdown measure_slowdown(PreflightRank& rank, const ProductShape& shape);

}  // namespace lockstep
