#include "model/generate.h"

#include <algorithm>

#include "core/integer.h"
#include "core/mirror.h"
#include "model/embedding.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPrefillTokens = 512;  // in one piece of all prompts: bounds the activations

void check(const Prompt& prompt, const ModelConfig& config) {
  const auto length = std::ssize(prompt.ids);
  if (length == 0)
    throw UsageError("the prompt is empty; generation starts from at least one token");
  if (length + prompt.tokens > config.max_positions)
    throw UsageError(str("a prompt of ", length, " tokens and ", prompt.tokens,
                         " to generate are more than the model's ", config.max_positions,
                         " positions"));
  for (const auto token : prompt.ids)
    if (token < 0 || token >= config.vocabulary)
      throw UsageError(
          str("prompt token ", token, " is not below the vocabulary of ", config.vocabulary));
}

// Lengths that cover all prompts.
struct Lengths {
  explicit Lengths(std::span<const Prompt> prompts) {
    for (const Prompt& prompt : prompts) {
      capacity = std::max(capacity, std::ssize(prompt.ids) + prompt.tokens);
      front = std::max(front, std::ssize(prompt.ids) - 1);
    }
  }
  std::int64_t capacity = 0;  // tokens per sequence in the cache
  std::int64_t front = 0;     // tokens before a prompt's last token
};

// Sequences grow in a cache.
class Sequences {
 public:
  Sequences(const StepContext& step, Transformer& model, Arena& pinned, std::int64_t count,
            const Lengths& lengths)
      : step_(step),
        model_(model),
        count_(count),
        piece_(std::clamp<std::int64_t>(lengths.front, 1, divide_up(kPrefillTokens, count))),
        cache_(model.allocate_cache(step.scratch, step.compute, count, lengths.capacity)),
        tokens_(mirror("new_tokens", DType::int32, {count * piece_}, pinned)),
        positions_(mirror("new_positions", DType::int32, {count * piece_}, pinned)),
        logits_(mirror("next_logits", DType::fp32, {count, model.stored_vocabulary()}, pinned)) {}

  // Runs all prompts up to their last tokens. A shorter prompt is padded with tokens 0. Its next
  // tokens overwrite their places in the cache before they attend to them.
  void prefill(std::span<const Prompt> prompts, std::int64_t front) {
    for (std::int64_t first = 0; first < front; first += piece_) {
      const auto n = std::min(piece_, front - first);
      set(n, [&](std::int64_t b, std::int64_t i) -> Token {
        const auto& ids = prompts[static_cast<std::size_t>(b)].ids;
        const auto at = first + i;
        return {at < std::ssize(ids) ? ids[static_cast<std::size_t>(at)] : 0, at};
      });
      model_.prefill(sent(n), tokens_.device().rows(0, count_ * n), cache_);
      step_.compute.synchronize();  // the host's arrays can be reused
    }
  }

  struct Token {
    std::int32_t id = 0;
    std::int64_t position = 0;
  };
  // Appends one token to each sequence; returns the logits after it, [count, Vp].
  Tensor append(std::span<const Token> tokens) {
    set(1, [&](std::int64_t b, std::int64_t) { return tokens[static_cast<std::size_t>(b)]; });
    model_.predict(sent(1), logits_.device(), tokens_.device().rows(0, count_), &cache_);
    logits_.fetch(step_.compute);
    step_.compute.synchronize();
    return logits_.host();
  }

 private:
  Mirror mirror(const char* name, DType dtype, const Shape& shape, Arena& pinned) const {
    return {name, step_.scratch.allocate(name, dtype, shape), pinned};
  }

  void set(std::int64_t n, FunctionRef<Token(std::int64_t b, std::int64_t i)> token) {
    if (step_.compute.is_measuring()) return;
    for (std::int64_t b = 0; b < count_; ++b)
      for (std::int64_t i = 0; i < n; ++i) {
        const Token t = token(b, i);
        tokens_.host().as<std::int32_t>()[b * n + i] = t.id;
        positions_.host().as<std::int32_t>()[b * n + i] = static_cast<std::int32_t>(t.position);
      }
  }

  StepContext sent(std::int64_t n) {
    tokens_.send(step_.compute);
    positions_.send(step_.compute);
    StepContext step = step_;
    Tensor positions = positions_.device();
    positions.shape = {count_, n};
    step.positions = positions;
    return step;
  }

  const StepContext& step_;
  Transformer& model_;
  std::int64_t count_, piece_;
  Transformer::Cache cache_;
  Mirror tokens_, positions_, logits_;
};

}  // namespace

void generate(const StepContext& step, Transformer& model, Arena& pinned,
              std::span<const Prompt> prompts, const Sampling& sampling,
              FunctionRef<bool(std::size_t, std::int32_t)> emit) {
  for (const Prompt& prompt : prompts)
    check(prompt, model.config());
  const Arena::Scope scope(step.scratch), pinned_scope(pinned);
  const Lengths lengths(prompts);
  Sequences sequences(step, model, pinned, std::ssize(prompts), lengths);
  Sampler sampler(sampling, static_cast<int>(model.config().vocabulary));

  sequences.prefill(prompts, lengths.front);
  std::vector<Sequences::Token> last;  // of each; an ended sequence is run again, unused
  std::vector<std::int64_t> left;
  for (const Prompt& prompt : prompts) {
    last.push_back({prompt.ids.back(), std::ssize(prompt.ids) - 1});
    left.push_back(prompt.tokens);
  }
  const auto goes_on = [&] {
    return std::any_of(left.begin(), left.end(), [](auto n) { return n > 0; });
  };
  if (step.compute.is_measuring()) {
    sequences.append(last);
    return;
  }
  while (goes_on()) {
    const Tensor logits = sequences.append(last);
    const auto row = logits.shape[1];
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (left[i] == 0) continue;
      const auto drawn = static_cast<std::uint64_t>(prompts[i].tokens - left[i]);
      const std::int32_t token = sampler.draw(
          {logits.as<float>() + static_cast<std::int64_t>(i) * row, static_cast<std::size_t>(row)},
          prompts[i].number * Sampler::kMostDraws + drawn);
      left[i] = emit(i, token) ? left[i] - 1 : 0;
      last[i] = left[i] > 0 ? Sequences::Token{token, last[i].position + 1} : last[i];
    }
  }
}

}  // namespace lockstep
