#include "model/sequence.h"

#include "kernels/elementwise.h"
#include "kernels/pieces.h"

namespace lockstep {
namespace {

Shape with_rows(const Shape& shape, std::int64_t rows) {
  Shape s = shape;
  s.size[0] = rows;
  return s;
}

}  // namespace

ConstTensor gather_sequence(const StepContext& step, ConstTensor x) {
  Communicator& tensor = *step.comms.tensor;
  if (tensor.size() == 1) return x;
  const auto all =
      step.scratch.allocate("gathered", x.dtype, with_rows(x.shape, tensor.size() * x.shape[0]));
  tensor.all_gather(all, x, step.compute);
  return all.rows(0, step.tokens());
}

ConstTensor largest_of_ranks(const StepContext& step, ConstTensor x) {
  Communicator& tensor = *step.comms.tensor;
  if (tensor.size() == 1 || !x) return x;
  const auto most = step.scratch.allocate("largest", DType::fp32, {1});
  step.compute.copy(most, x);
  tensor.all_reduce(most, ReduceOp::max, step.compute);
  return most;
}

SequenceSum::SequenceSum(const StepContext& step, Tensor out)
    : step_(step), out_(out), partial_(out) {
  const auto t = step.comms.tensor->size();
  if (t == 1) return;
  padded_ = step.scratch.allocate("partial", out.dtype, with_rows(out.shape, t * out.shape[0]));
  partial_ = padded_.rows(0, step.tokens());
}

void SequenceSum::finish(ConstTensor bias, ConstTensor residual, Tensor absmax) const {
  if (has_one_rank()) return;
  const Arena::Scope scope(step_.scratch);
  const auto N = partial_.shape[0], behind = padded_.shape[0] - N;
  if (behind > 0) fill(step_.compute, padded_.rows(N, behind), 0.0f);
  const auto t = step_.comms.tensor->size();
  const auto pieces = step_.scratch.allocate("pieces", out_.dtype, {t, out_.elements()});
  step_.comms.tensor->all_to_all(pieces, padded_, step_.compute);
  sum_pieces(step_.compute,
             {.out = out_, .pieces = pieces, .bias = bias, .residual = residual, .absmax = absmax});
}

}  // namespace lockstep
