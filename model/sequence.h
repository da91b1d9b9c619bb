// Sequence parallelism between tensor ranks. Norms and sums of the residual stream have a slice of
// the tokens on each rank, [n, C] with n = N/t rounded up; matmuls have all tokens, [N, C]. With
// one tensor rank both are the same, and nothing is done.
#pragma once

#include "model/step.h"

namespace lockstep {

// Returns all ranks' slices of x [n, C], in scratch: [N, C]. With one rank it returns x itself.
ConstTensor gather_sequence(const StepContext& step, ConstTensor x);

// Returns the maximum over ranks of x [1] fp32, in scratch. With one rank it returns x itself.
ConstTensor largest_of_ranks(const StepContext& step, ConstTensor x);

// SequenceSum sums over ranks the partial results that each rank computes for all tokens.
class SequenceSum {
 public:
  // Allocates a partial [N, C] in scratch: the caller writes this rank's values to partial(). With
  // one rank, partial() is `out`.
  SequenceSum(const StepContext& step, Tensor out);
  Tensor partial() const { return partial_; }
  bool has_one_rank() const { return partial_.data == out_.data; }

  // out [n, C] = this rank's rows of the sum, in fp32 and in rank order, (+ bias [C]) (+ residual
  // [n, C]). With one rank it does nothing: the code that made the partial has added them.
  //   absmax [1], if given: set to max |out|
  void finish(ConstTensor bias = {}, ConstTensor residual = {}, Tensor absmax = {}) const;

 private:
  const StepContext& step_;
  Tensor out_, padded_, partial_;
};

}  // namespace lockstep
