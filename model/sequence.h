// Sequence parallelism between tensor ranks. Norms and sums of the residual stream have a slice of
// the tokens on each rank, [n, C] with n = N/t rounded up; matmuls have all tokens, [N, C]. With
// one tensor rank both are the same, and nothing is done.
//
// Gathers and sums of the tokens of a micro-batch are split in k chunks (StepContext::chunks), each
// with a collective of its own. Chunk i is rows [i N/k, (i + 1) N/k) of all tokens. Each rank's
// slice has 1/t of each chunk: its rows [i n/k, (i + 1) n/k).
#pragma once

#include <utility>
#include <vector>

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

// Rows of chunk i of `t`, which has the rows of all tokens or of a slice. An absent tensor stays
// so.
template <class View>
View chunk_of(const StepContext& step, View t, std::int64_t i) {
  if (!t || step.chunks() == 1) return t;
  const auto rows = t.shape[0] / step.chunks();
  return t.rows(i * rows, rows);
}

// The results are in scratch. With one rank they are x itself.
//   gather          x [n, ...] of each rank, in rank order: [t n, ...]
//   start_largest   the maximum of x [1] fp32 over ranks; x may be absent
ConstTensor gather(const StepContext& step, ConstTensor x);
FromRanks start_largest(const StepContext& step, ConstTensor x);

// SequenceGather gathers all ranks' slices of x [n, C] to [N, C] in scratch.
class SequenceGather {
 public:
  SequenceGather(const StepContext& step, ConstTensor x);  // starts all chunks
  ConstTensor wait(std::int64_t i) const;                  // chunk i; those before it are there too
  ConstTensor wait() const;                                // all chunks

 private:
  const StepContext& step_;
  ConstTensor all_;
  std::vector<FromRanks> chunks_;
};

// SequenceSum sums over ranks the partial results that each rank computes for all tokens.
class SequenceSum {
 public:
  // Allocates a partial [N, C] in scratch: the caller writes this rank's values to partial(). With
  // one rank, partial() is `out`.
  SequenceSum(const StepContext& step, Tensor out);
  Tensor partial() const { return partial_; }
  bool has_one_rank() const { return partial_.data == out_.data; }

  // out [n, C] = this rank's rows of the sum, in fp32 and in rank order, (+ bias [C]) (+ residual
  // [n, C]). With one rank it does nothing: the code that wrote partial() has added them.
  //   absmax [1], if given: set to max |out|
  FromRanks start(ConstTensor bias = {}, ConstTensor residual = {}, Tensor absmax = {}) const;
  // The same for the rows of chunk i. The chunks of one sum end in order.
  FromRanks start_chunk(std::int64_t i, ConstTensor bias, ConstTensor residual,
                        Tensor absmax = {}) const;

 private:
  const StepContext& step_;
  Tensor out_, padded_, partial_;
};

}  // namespace lockstep
