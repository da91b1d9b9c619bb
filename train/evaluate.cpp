#include "train/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/log.h"
#include "core/units.h"
#include "data/loader.h"
#include "train/batch_shape.h"
#include "train/inference.h"
#include "train/loss_sum.h"
#include "train/memory.h"

namespace lockstep {
namespace {

// The model, its loader and the sums of losses: all that takes memory.
class Evaluator {
 public:
  Evaluator(const ModelSource& source, const EvaluateRequest& request, Stream& stream,
            Arenas& arenas)
      : stream_(stream),
        inference_({.model = source.model,
                    .sequences = request.micro_batch,
                    .sequence_length = request.sequence_length},
                   stream, arenas),
        loader_({.sources = {{.paths = request.datasets}},
                 .sequence_length = static_cast<int>(request.sequence_length),
                 .global_batch_sequences = request.micro_batch,
                 .vocabulary = source.model.vocabulary,
                 .document_mask = request.document_mask,
                 .rows = request.rows,
                 .shuffle = false,
                 .repeat = false,
                 .most_samples = most_windows(request.tokens, request.sequence_length)},
                static_cast<int>(request.micro_batch), 0, 1, arenas.pinned),
        losses_(arenas.device.allocate("loss_sum", DType::fp32, {1}),
                arenas.device.allocate("valid_tokens", DType::int32, {1}), arenas.pinned) {}

  Inference& inference() { return inference_; }
  Loader& loader() { return loader_; }

  Event enqueue(const Batch& pinned) {
    const Batch batch = inference_.on_device(pinned);
    Event was_read = stream_.record();
    losses_.enqueue(inference_.transformer(), inference_.context(batch), batch);
    return was_read;
  }
  LossSum read() { return losses_.read(); }

 private:
  Stream& stream_;
  Inference inference_;
  Loader loader_;
  LossReader losses_;
};

Arenas::Bytes measure(const ModelSource& source, const EvaluateRequest& request, Device device,
                      int threads) {
  Stream stream(device, "measure", Stream::Mode::measuring, threads);
  Arenas arenas = Arenas::measure(device);
  Evaluator evaluator(source, request, stream, arenas);
  evaluator.enqueue(batch_shape(request.micro_batch, request.sequence_length));
  return arenas.peak();
}

}  // namespace

Evaluation evaluate(const ModelSource& source, const EvaluateRequest& request, Stream& stream) {
  const auto begin = std::chrono::steady_clock::now();
  const auto bytes = measure(source, request, stream.device(), stream.threads());
  require_memory(stream.device(), bytes,
                 "evaluate a smaller model, or windows of a shorter --sequence-length");
  Arenas arenas(stream.device(), bytes);
  Evaluator evaluator(source, request, stream, arenas);
  load_weights(source, evaluator.inference().params(), stream);

  const auto all = evaluator.loader().samples() * request.sequence_length;
  auto said = begin;
  std::int64_t tokens = 0;
  double loss = 0;
  const auto read_next = [&] {
    const LossSum part = evaluator.read();
    if (!std::isfinite(part.loss))
      throw DataError(str(source.path.string(), ": the loss of tokens ", tokens, " to ",
                          tokens + part.tokens, " is ", part.loss,
                          "; its weights are not those of a trained model"));
    tokens += part.tokens;
    loss += part.loss;
    if (const auto now = std::chrono::steady_clock::now(); now - said > std::chrono::seconds(10)) {
      log_info("evaluated ", human_count(static_cast<double>(tokens)), " of ",
               human_count(static_cast<double>(all)), " tokens, loss ",
               loss / static_cast<double>(tokens));
      said = now;
    }
    return part;
  };
  const auto never = [] { return false; };
  const auto enqueue_next = [&](const Batch& batch) { return evaluator.enqueue(batch); };
  const LossSum sum =
      *evaluate_all(evaluator.loader(), stream.device(), enqueue_next, read_next, never);
  Evaluation result{.loss = sum.mean(), .tokens = sum.tokens};
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace lockstep
