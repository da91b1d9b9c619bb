#include "train/generate.h"

#include <algorithm>

#include "core/mirror.h"
#include "model/embedding.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPrefillTokens = 512;  // of the prompt at once: bounds the activations

void check(const GenerateRequest& request, const ModelConfig& config) {
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length == 0)
    throw UsageError("the prompt is empty; generation starts from at least one token");
  if (length + request.tokens > config.max_positions)
    throw UsageError(str("a prompt of ", length, " tokens and ", request.tokens,
                         " to generate are more than the model's ", config.max_positions,
                         " positions"));
  for (const auto token : request.prompt)
    if (token < 0 || token >= config.vocabulary)
      throw UsageError(
          str("prompt token ", token, " is not below the vocabulary of ", config.vocabulary));
}

// One sequence that grows in a cache.
class Sequence {
 public:
  Sequence(const StepContext& step, Transformer& model, Arena& pinned, std::int64_t capacity)
      : step_(step),
        model_(model),
        cache_(model.allocate_cache(step.scratch, step.compute, 1, capacity)),
        tokens_(mirror("new_tokens", DType::int32, {kPrefillTokens}, pinned)),
        positions_(mirror("new_positions", DType::int32, {1, kPrefillTokens}, pinned)),
        logits_(mirror("next_logits", DType::fp32, {1, model.stored_vocabulary()}, pinned)) {}

  // Appends tokens, at most kPrefillTokens; the logits behind the last one.
  std::span<const float> append(std::span<const std::int32_t> tokens) {
    const auto n = static_cast<std::int64_t>(tokens.size());
    const bool measuring = step_.compute.is_measuring();
    for (std::int64_t i = 0; i < n && !measuring; ++i) {
      tokens_.host().as<std::int32_t>()[i] = tokens[static_cast<std::size_t>(i)];
      positions_.host().as<std::int32_t>()[i] = static_cast<std::int32_t>(length_ + i);
    }
    tokens_.send(step_.compute);
    positions_.send(step_.compute);
    length_ += n;
    StepContext step = step_;
    Tensor positions = positions_.device();
    positions.shape = {1, n};
    step.positions = positions;
    model_.predict(step, logits_.device(), tokens_.device().rows(0, n), &cache_);
    logits_.fetch(step_.compute);
    step_.compute.synchronize();
    const Tensor logits = logits_.host();
    return {logits.as<float>(), static_cast<std::size_t>(logits.elements())};
  }

 private:
  Mirror mirror(const char* name, DType dtype, const Shape& shape, Arena& pinned) const {
    return {name, step_.scratch.allocate(name, dtype, shape), pinned};
  }

  const StepContext& step_;
  Transformer& model_;
  Transformer::Cache cache_;
  Mirror tokens_, positions_, logits_;
  std::int64_t length_ = 0;
};

}  // namespace

void generate(const StepContext& step, Transformer& model, Arena& pinned,
              const GenerateRequest& request, FunctionRef<bool(std::int32_t)> emit) {
  check(request, model.config());
  const Arena::Scope scope(step.scratch), pinned_scope(pinned);
  const auto length = request.prompt.size();
  Sequence sequence(step, model, pinned, static_cast<std::int64_t>(length) + request.tokens);
  Sampler sampler(request.sampling, static_cast<int>(model.config().vocabulary));

  std::span<const float> logits;
  for (std::size_t first = 0; first < length; first += kPrefillTokens)
    logits = sequence.append(
        request.prompt.subspan(first, std::min<std::size_t>(kPrefillTokens, length - first)));
  if (step.compute.is_measuring()) return;
  for (std::int64_t i = 0; i < request.tokens; ++i) {
    const std::int32_t token = sampler.draw(logits, static_cast<std::uint64_t>(i));
    if (!emit(token) || i + 1 == request.tokens) return;
    logits = sequence.append({&token, 1});
  }
}

}  // namespace lockstep
