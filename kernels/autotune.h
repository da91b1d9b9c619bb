#pragma once

#include <vector>

#include "core/function_ref.h"
#include "core/stream.h"

namespace lockstep {

// Which of several ways to compute the same is the fastest on a GPU, found by measuring.
struct Fastest {
  int way = -1;                 // -1: none can
  std::vector<double> seconds;  // of one call of each way; infinite where it cannot
};

// The first way that can stays, unless another takes at least 1% less time: so that among equals
// noise does not choose. All are timed in turns, best of several, as a GPU's clock changes while
// it works; those far behind are left out after the first. Waits for the stream.
//   run(way)  enqueues it once; false where it cannot, and then nothing happened
Fastest find_fastest(Stream& stream, int ways, FunctionRef<bool(int way)> run);

}  // namespace lockstep
