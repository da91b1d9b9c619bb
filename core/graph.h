// Graph is repeated work of a CUDA stream, launched with one call instead of one call per kernel.
#pragma once

#include <memory>

#include "core/function_ref.h"
#include "core/stream.h"

struct CUgraphExec_st;

namespace lockstep {

class Graph {
 public:
  // Runs the work that `work` enqueues. The first call captures it; later calls launch the captured
  // work without calling `work`. So `work` must not use other streams or wait. Host data that it
  // uses (kernel arguments, addresses) must stay the same; values that change must be on the
  // device. Run the work once without a graph first, so that libraries choose their algorithms.
  void run(Stream& stream, FunctionRef<void()> work);

 private:
  struct Destroy {
    void operator()(CUgraphExec_st* graph) const noexcept;
  };
  std::unique_ptr<CUgraphExec_st, Destroy> captured_;
};

}  // namespace lockstep
