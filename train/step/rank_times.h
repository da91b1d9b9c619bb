// RankTimes gathers a duration of each rank on all ranks, with one small collective of the compute
// stream. It costs the step nothing, because the host reads the result after the step.
#pragma once

#include <vector>

#include "core/mirror.h"
#include "dist/comms.h"

namespace lockstep {

class RankTimes {
 public:
  // `comms` must outlive this. On a GPU, host memory comes from `pinned`.
  RankTimes(Comms& comms, Arena& arena, Arena& pinned);

  // Collective; the previous result must have been read. `seconds`: of this rank.
  void enqueue(Stream& stream, double seconds);
  std::vector<double> read();  // by rank; waits for the device

 private:
  Comms& comms_;
  Tensor mine_;  // [1] fp32
  Mirror all_;   // [ranks]
  Event done_;
};

}  // namespace lockstep
