#include "model/sequence.h"

#include "kernels/elementwise.h"
#include "kernels/pieces.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

Shape with_rows(const Shape& shape, std::int64_t rows) {
  Shape s = shape;
  s.size[0] = rows;
  return s;
}

// Runs work(stream), which makes `result`, on the stream of the tensor group.
template <class Work>
FromRanks start(const StepContext& step, ConstTensor result, Work&& work) {
  Stream& stream = step.params.tensor_stream(step.compute);
  work(stream);
  if (&stream == &step.compute) return FromRanks(result);
  return {step.compute, result, stream.record()};
}

}  // namespace

ConstTensor FromRanks::wait() const {
  if (compute_ == nullptr) return result_;
  const Trace::Span span(*compute_, Component::communication_tensor);
  compute_->wait(done_);
  return result_;
}

FromRanks start_gather(const StepContext& step, ConstTensor x, std::int64_t rows) {
  Communicator& tensor = *step.comms.tensor;
  if (tensor.size() == 1) return FromRanks(x);
  const auto all =
      step.scratch.allocate("gathered", x.dtype, with_rows(x.shape, tensor.size() * x.shape[0]));
  return start(step, all.rows(0, rows), [&](Stream& stream) { tensor.all_gather(all, x, stream); });
}

FromRanks start_largest(const StepContext& step, ConstTensor x) {
  Communicator& tensor = *step.comms.tensor;
  if (tensor.size() == 1 || !x) return FromRanks(x);
  const auto all = step.scratch.allocate("largest_of_ranks", DType::fp32, {tensor.size()});
  const auto most = step.scratch.allocate("largest", DType::fp32, {1});
  return start(step, most, [&](Stream& stream) {
    tensor.all_gather(all, x,
                      stream);  // by copy engines; an all-reduce would take a kernel of NCCL
    absmax(stream, most, all);
  });
}

SequenceSum::SequenceSum(const StepContext& step, Tensor out)
    : step_(step), out_(out), partial_(out) {
  const auto t = step.comms.tensor->size();
  if (t == 1) return;
  padded_ = step.scratch.allocate("partial", out.dtype, with_rows(out.shape, t * out.shape[0]));
  partial_ = padded_.rows(0, step.tokens());
}

FromRanks SequenceSum::start(ConstTensor bias, ConstTensor residual, Tensor absmax) const {
  if (has_one_rank()) return FromRanks(out_);
  const auto N = partial_.shape[0], behind = padded_.shape[0] - N;
  if (behind > 0) fill(step_.compute, padded_.rows(N, behind), 0.0f);
  const auto t = step_.comms.tensor->size();
  const auto pieces = step_.scratch.allocate("pieces", out_.dtype, {t, out_.elements()});
  return lockstep::start(step_, out_, [&](Stream& stream) {
    step_.comms.tensor->all_to_all(pieces, padded_, stream);
    sum_pieces(
        stream,
        {.out = out_, .pieces = pieces, .bias = bias, .residual = residual, .absmax = absmax});
  });
}

void SequenceSum::finish(ConstTensor bias, ConstTensor residual) const {
  const Arena::Scope scope(step_.scratch);
  start(bias, residual).wait();
}

}  // namespace lockstep
