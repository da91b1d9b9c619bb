// RankTimes: seconds of each rank, at all of them, by one small collective of the compute stream:
// off a step's path, as the host reads them when the step is done.
#pragma once

#include <vector>

#include "core/mirror.h"
#include "dist/comms.h"

namespace lockstep {

class RankTimes {
 public:
  // `comms` outlives this; host memory of a GPU comes from `pinned`.
  RankTimes(Comms& comms, Arena& arena, Arena& pinned);

  // Every rank at once; of the one before they were read. `seconds`: of this rank.
  void enqueue(Stream& stream, double seconds);
  std::vector<double> read();  // by rank; waits for the device

 private:
  Comms& comms_;
  Tensor mine_;  // [1] fp32
  Mirror all_;   // [ranks]
  Event done_;
};

}  // namespace lockstep
