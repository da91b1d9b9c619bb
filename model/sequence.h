// The sequence between tensor ranks. Norms and sums of the residual stream have a slice of the
// tokens on each rank, [n, C] with n = N/t rounded up; matrices have all tokens, [N, C]. With one
// tensor rank both are the same, and nothing is done.
#pragma once

#include "model/step.h"

namespace lockstep {

// All ranks' slices of x [n, C], in scratch: [N, C]. With one rank x itself.
ConstTensor gather_sequence(const StepContext& step, ConstTensor x);

// Of something [1] fp32 that each rank has: the largest, in scratch. With one rank x itself.
ConstTensor largest_of_ranks(const StepContext& step, ConstTensor x);

// A sum over ranks of what each makes of all tokens.
class SequenceSum {
 public:
  // Takes a partial [N, C] from scratch: write this rank's to partial(). With one rank that is
  // `out`.
  SequenceSum(const StepContext& step, Tensor out);
  Tensor partial() const { return partial_; }
  bool has_one_rank() const { return partial_.data == out_.data; }

  // out [n, C] = this rank's rows of the sum, in fp32 and in the order of ranks, (+ bias [C])
  // (+ residual [n, C]); with one rank nothing: who made the partial has added them.
  //   absmax [1], where given: set to max |out|
  void finish(ConstTensor bias = {}, ConstTensor residual = {}, Tensor absmax = {}) const;

 private:
  const StepContext& step_;
  Tensor out_, padded_, partial_;
};

}  // namespace lockstep
