// Sequence parallelism between tensor ranks. Norms and sums of the residual stream have a slice of
// the tokens on each rank, [n, C] with n = N/t rounded up; matmuls have all tokens, [N, C]. With
// one tensor rank both are the same, and nothing is done.
#pragma once

#include <utility>

#include "model/step.h"

namespace lockstep {

// Result of calls of the tensor group. They run on the group's stream (ParamStore::tensor_stream)
// while compute continues until wait(). Their scratch memory must stay allocated until then.
class FromRanks {
 public:
  explicit FromRanks(ConstTensor result) : result_(result) {}  // is there already
  FromRanks(Stream& compute, ConstTensor result, Event done)
      : compute_(&compute), result_(result), done_(std::move(done)) {}
  ConstTensor wait() const;  // makes compute wait, and returns the result

 private:
  Stream* compute_ = nullptr;
  ConstTensor result_;
  Event done_;
};

// The results are in scratch. With one rank they are x itself.
//   gather    x [n, ...] of each rank, in rank order: [rows, ...], at most t n rows
//   largest   the maximum of x [1] fp32; x may be absent
FromRanks start_gather(const StepContext& step, ConstTensor x, std::int64_t rows);
FromRanks start_largest(const StepContext& step, ConstTensor x);
// Returns all ranks' slices of x [n, C]: [N, C].
inline ConstTensor gather_sequence(const StepContext& step, ConstTensor x) {
  return start_gather(step, x, step.tokens()).wait();
}

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
  FromRanks start(ConstTensor bias = {}, ConstTensor residual = {}, Tensor absmax = {}) const;
  void finish(ConstTensor bias = {}, ConstTensor residual = {}) const;  // start() and wait()

 private:
  const StepContext& step_;
  Tensor out_, padded_, partial_;
};

}  // namespace lockstep
