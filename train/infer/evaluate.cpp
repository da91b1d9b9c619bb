#include "train/infer/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "core/log.h"
#include "core/units.h"
#include "data/loader.h"
#include "dist/topology/holders.h"
#include "dist/topology_here.h"
#include "train/step/batch_shape.h"
#include "train/step/inference.h"
#include "train/step/loss_sum.h"
#include "train/step/memory.h"

namespace lockstep {
namespace {

// Evaluator holds everything that needs memory: the model, its loader and the sums of losses.
class Evaluator {
 public:
  Evaluator(const EvaluateRequest& request, Inference& inference)
      : inference_(inference),
        loader_({.sources = {{.paths = request.datasets}},
                 .sequence_length = static_cast<int>(request.sequence_length),
                 .global_batch_sequences = request.micro_batch * inference.place().ranks,
                 .vocabulary = inference.transformer().config().vocabulary,
                 .document_mask = request.document_mask,
                 .rows = request.rows,
                 .shuffle = false,
                 .repeat = false,
                 .most_samples = most_windows(request.tokens, request.sequence_length),
                 .files = request.files},
                static_cast<int>(request.micro_batch), inference.place().rank,
                inference.place().ranks, inference.arenas().pinned),
        losses_(inference.arenas().device.allocate("loss_sum", DType::fp32, {1}),
                inference.arenas().device.allocate("valid_tokens", DType::int32, {1}),
                inference.arenas().pinned) {}

  Loader& loader() { return loader_; }

  Event enqueue(const Batch& pinned) {
    const Batch batch = inference_.on_device(pinned);
    Event was_read = inference_.compute().record();
    losses_.enqueue(inference_.transformer(), inference_.context(batch), batch);
    return was_read;
  }
  LossSum read() { return losses_.read(); }

 private:
  Inference& inference_;
  Loader loader_;
  LossReader losses_;
};

// ByteCount counts the bytes of the text of tokens.
class ByteCount {
 public:
  ByteCount(const Tokenizer& tokenizer, std::int64_t vocabulary) {
    for (std::int32_t id = 0; id < vocabulary; ++id)
      bytes_of_.push_back(tokenizer.is_special(id) ? 0 : std::ssize(tokenizer.bytes_of(id)));
    // The tokenizer adds a space after the document token, which does not count.
    const auto document = tokenizer.about().document_token;
    if (tokenizer.about().drops_first_space && 0 <= document && document < vocabulary)
      bytes_of_[static_cast<std::size_t>(document)] = -1;
  }
  void add(ConstTensor targets) {  // on the host
    for (std::int64_t i = 0; i < targets.elements(); ++i)
      if (const auto id = targets.as<std::int32_t>()[i]; id >= 0)
        bytes_ += bytes_of_[static_cast<std::size_t>(id)];
  }
  std::int64_t of_all(const Comms& comms) const {
    const auto mine = counts_tokens(comms.mesh, comms.world->rank()) ? bytes_ : 0;
    std::int64_t sum = 0;
    for (const auto& said : comms.world->exchange(std::to_string(mine)))
      sum += std::stoll(said);
    return sum;
  }

 private:
  std::vector<std::int64_t> bytes_of_;
  std::int64_t bytes_ = 0;
};

}  // namespace

Evaluation evaluate(const ModelSource& source, const EvaluateRequest& request,
                    const ModelRanks& ranks, Stream& stream) {
  const auto begin = std::chrono::steady_clock::now();
  const Inference::Config config{.model = source.model,
                                 .sequences = request.micro_batch,
                                 .sequence_length = request.sequence_length};
  const auto bytes =
      measure_inference(config, ranks.mesh, /*rank=*/0, stream, [&](Inference& model) {
        Evaluator(request, model)
            .enqueue(batch_shape(request.micro_batch, request.sequence_length));
      });
  room_here(stream.device(), static_cast<int>(ranks_here(ranks.world).size()))
      .require(
          bytes,
          "evaluate a smaller model, use a shorter --sequence-length, or divide the model over "
          "ranks (--tensor, --shard)");
  Arenas arenas(stream.device(), bytes, ranks.world.allocate(bytes.device));
  Inference inference(config, stream, arenas, ranks.comms());
  Evaluator evaluator(request, inference);
  const StopOnError files(request.files);
  load_weights(source, inference.params(), stream);
  std::optional<ByteCount> text;
  if (request.tokenizer != nullptr) text.emplace(*request.tokenizer, source.model.vocabulary);

  const auto all = evaluator.loader().samples() * request.sequence_length;
  auto said = begin;
  std::int64_t tokens = 0;
  double loss = 0;
  const auto read_next = [&] {
    const LossSum part = evaluator.read();
    if (!std::isfinite(part.loss))
      throw DataError(str(source.path.string(), ": the loss of tokens ", tokens, " to ",
                          tokens + part.tokens, " is ", part.loss,
                          "; the weights are not those of a trained model"));
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
  const auto enqueue_next = [&](const Batch& batch) {
    if (text) text->add(batch.targets);
    return evaluator.enqueue(batch);
  };
  const LossSum sum =
      *evaluate_all(evaluator.loader(), stream.device(), enqueue_next, read_next, never);
  Evaluation result{.loss = sum.mean(), .tokens = sum.tokens};
  if (text) result.bytes = text->of_all(inference.comms());
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace lockstep
