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

Tensor allocate_gathered(const StepContext& step, ConstTensor x) {
  return step.scratch.allocate("gathered", x.dtype,
                               with_rows(x.shape, step.comms.tensor->size() * x.shape[0]));
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

ConstTensor gather(const StepContext& step, ConstTensor x) {
  Communicator& tensor = *step.comms.tensor;
  if (tensor.size() == 1) return x;
  const auto all = allocate_gathered(step, x);
  return start(step, all, [&](Stream& stream) { tensor.all_gather(all, x, stream); }).wait();
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

SequenceGather::SequenceGather(const StepContext& step, ConstTensor x) : step_(step), all_(x) {
  Communicator& tensor = *step.comms.tensor;
  if (tensor.size() == 1) return;
  const auto padded = allocate_gathered(step, x);
  all_ = padded.rows(0, step.tokens());
  for (std::int64_t i = 0; i < step.chunks(); ++i)
    chunks_.push_back(start(step, chunk_of(step, all_, i), [&](Stream& stream) {
      tensor.all_gather(chunk_of(step, padded, i), chunk_of(step, x, i), stream);
    }));
}

ConstTensor SequenceGather::wait(std::int64_t i) const {
  return chunks_.empty() ? all_ : chunks_[static_cast<std::size_t>(i)].wait();
}

ConstTensor SequenceGather::wait() const {
  wait(step_.chunks() - 1);
  return all_;
}

SequenceSum::SequenceSum(const StepContext& step, Tensor out)
    : step_(step), out_(out), partial_(out) {
  const auto t = step.comms.tensor->size();
  if (t == 1) return;
  padded_ = step.scratch.allocate("partial", out.dtype, with_rows(out.shape, t * out.shape[0]));
  partial_ = padded_.rows(0, step.tokens());
}

FromRanks SequenceSum::start(ConstTensor bias, ConstTensor residual, Tensor absmax) const {
  const auto k = step_.chunks();
  if (k == 1) return start_chunk(0, bias, residual, absmax);
  const auto most = absmax ? step_.scratch.allocate("chunks_absmax", DType::fp32, {k}) : Tensor{};
  for (std::int64_t i = 0; i + 1 < k; ++i)
    start_chunk(i, bias, residual, most ? most.rows(i, 1) : Tensor{});
  auto last = start_chunk(k - 1, bias, residual, most ? most.rows(k - 1, 1) : Tensor{});
  if (!absmax) return last;
  return lockstep::start(step_, out_,
                         [&](Stream& stream) { lockstep::absmax(stream, absmax, most); });
}

FromRanks SequenceSum::start_chunk(std::int64_t i, ConstTensor bias, ConstTensor residual,
                                   Tensor absmax) const {
  if (has_one_rank()) return FromRanks(out_);
  const auto N = partial_.shape[0], behind = padded_.shape[0] - N;
  if (behind > 0) fill(step_.compute, padded_.rows(N, behind), 0.0f);
  const auto out = chunk_of(step_, out_, i);
  const auto t = step_.comms.tensor->size();
  const auto pieces = step_.scratch.allocate("pieces", out.dtype, {t, out.elements()});
  return lockstep::start(step_, out, [&](Stream& stream) {
    step_.comms.tensor->all_to_all(pieces, chunk_of(step_, padded_, i), stream);
    sum_pieces(stream, {.out = out,
                        .pieces = pieces,
                        .bias = bias,
                        .residual = chunk_of(step_, residual, i),
                        .absmax = absmax});
  });
}

}  // namespace lockstep
