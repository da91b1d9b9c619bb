// Graph: work of a CUDA stream that is done again and again, launched with one call instead of one
// a kernel.
#pragma once

#include <memory>

#include "core/function_ref.h"
#include "core/stream.h"

struct CUgraphExec_st;

namespace lockstep {

class Graph {
 public:
  // Does what `work` gives the stream, which is the same every time: the first call asks `work` and
  // captures that, later ones do it again without asking. So `work` gives nothing to other streams,
  // waits for nothing, and whatever it takes from the host (arguments of kernels, addresses) stays
  // as it was; what changes lives on the device. It was done once without a graph before, so that
  // libraries have loaded their code and chosen their algorithms.
  void run(Stream& stream, FunctionRef<void()> work);

 private:
  struct Destroy {
    void operator()(CUgraphExec_st* graph) const noexcept;
  };
  std::unique_ptr<CUgraphExec_st, Destroy> captured_;
};

}  // namespace lockstep
