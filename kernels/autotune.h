#pragma once

#include <vector>

#include "core/function_ref.h"
#include "core/stream.h"

namespace lockstep {

// Fastest is the fastest of several ways to compute the same result on a GPU, found by measuring.
struct Fastest {
  int way = -1;                 // -1: none works
  std::vector<double> seconds;  // of one call of each way; infinite if it does not work
};

// Returns the fastest way. The first way that works is kept unless another takes over 1% less time,
// so that noise does not choose among equals. All are timed in rounds, best of several, because a
// GPU's clock changes while it works. Much slower ways are dropped after a round. Waits for the
// stream.
//   run(way)  enqueues it once; returns false, and enqueues nothing, if the way does not work
Fastest find_fastest(Stream& stream, int ways, FunctionRef<bool(int way)> run);

}  // namespace lockstep
