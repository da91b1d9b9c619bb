#include "train/evaluate.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "data/loader.h"
#include "kernels/elementwise.h"
#include "train/batch_shape.h"
#include "train/inference.h"

namespace lockstep {
namespace {

// The model, its loader and the sums of losses: all that takes memory.
class Evaluator {
 public:
  Evaluator(const ModelSource& source, const EvaluateRequest& request, Stream& stream, Arena& arena)
      : stream_(stream),
        inference_({.model = source.model,
                    .sequences = request.micro_batch,
                    .sequence_length = request.sequence_length},
                   stream, arena),
        loader_({.datasets = request.datasets,
                 .sequence_length = static_cast<int>(request.sequence_length),
                 .global_batch_sequences = request.micro_batch,
                 .vocabulary = source.model.vocabulary,
                 .document_mask = request.document_mask,
                 .shuffle = false,
                 .repeat = false},
                static_cast<int>(request.micro_batch), 0, 1, arena),
        loss_sum_(arena.allocate("loss_sum", DType::fp32, {1})),
        valid_tokens_(arena.allocate("valid_tokens", DType::int32, {1})) {}

  Inference& inference() { return inference_; }
  Loader& loader() { return loader_; }

  // Sum of the losses of one micro-batch, and its tokens.
  void add(const Batch& batch, double& loss, std::int64_t& tokens) {
    fill(stream_, loss_sum_, 0.0f);
    fill(stream_, valid_tokens_, 0.0f);
    const auto n = batch.inputs.elements();
    inference_.transformer().evaluate(
        inference_.context(batch), batch.inputs.view({n}),
        {.ids = batch.targets.view({n}), .loss_sum = loss_sum_, .valid_tokens = valid_tokens_});
    stream_.synchronize();
    if (stream_.is_measuring()) return;
    loss += *loss_sum_.as<float>();
    tokens += *valid_tokens_.as<std::int32_t>();
  }

 private:
  Stream& stream_;
  Inference inference_;
  Loader loader_;
  Tensor loss_sum_, valid_tokens_;
};

std::int64_t measure(const ModelSource& source, const EvaluateRequest& request, int threads) {
  Stream stream(Device{}, "measure", Stream::Mode::measuring, threads);
  Arena arena = Arena::measure(Device{});
  Evaluator evaluator(source, request, stream, arena);
  double loss = 0;
  std::int64_t tokens = 0;
  evaluator.add(batch_shape(request.micro_batch, request.sequence_length), loss, tokens);
  return arena.peak_bytes();
}

}  // namespace

Evaluation evaluate(const ModelSource& source, const EvaluateRequest& request, Stream& stream) {
  const auto begin = std::chrono::steady_clock::now();
  Arena arena(stream.device(), Arena::Memory::device, measure(source, request, stream.threads()));
  Evaluator evaluator(source, request, stream, arena);
  load_weights(source, evaluator.inference().params(), stream);

  auto samples = evaluator.loader().samples();
  if (request.tokens > 0)
    samples =
        std::min(samples, std::max<std::int64_t>(request.tokens / request.sequence_length, 1));
  Evaluation result;
  for (std::int64_t first = 0; first < samples; first += request.micro_batch) {
    const Batch batch = evaluator.loader().batch(first, 0);
    evaluator.add(batch, result.loss, result.tokens);
    evaluator.loader().release(batch, stream.record());
  }
  result.loss = result.tokens > 0 ? result.loss / static_cast<double>(result.tokens)
                                  : std::numeric_limits<double>::quiet_NaN();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace lockstep
