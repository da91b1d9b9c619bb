#include "model/generate.h"

#include <algorithm>
#include <limits>

#include "core/integer.h"
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
Generator::Size size_of(std::span<const Prompt> prompts) {
  Generator::Size size{.sequences = std::ssize(prompts)};
  for (const Prompt& prompt : prompts) {
    size.capacity = std::max(size.capacity, std::ssize(prompt.ids) + prompt.tokens);
    size.prefill = std::max(size.prefill, std::ssize(prompt.ids) - 1);
  }
  return size;
}

}  // namespace

Generator::Generator(const StepContext& step, Transformer& model, Arena& pinned, const Size& size)
    : step_(step),
      model_(model),
      count_(size.sequences),
      piece_(std::clamp<std::int64_t>(size.prefill, 1, divide_up(kPrefillTokens, count_))),
      cache_(model.allocate_cache(step.scratch, step.compute, count_, size.capacity)),
      cached_(static_cast<std::size_t>(count_)),
      tokens_(mirror("new_tokens", DType::int32, {count_ * piece_}, pinned)),
      positions_(mirror("new_positions", DType::int32, {count_ * piece_}, pinned)),
      logits_(mirror("next_logits", DType::fp32, {count_, model.stored_vocabulary()}, pinned)) {}

Mirror Generator::mirror(const char* name, DType dtype, const Shape& shape, Arena& pinned) const {
  return {name, step_.scratch.allocate(name, dtype, shape), pinned};
}

void Generator::set(std::int64_t n, FunctionRef<Token(std::int64_t b, std::int64_t i)> token) {
  if (step_.compute.is_measuring()) return;
  for (std::int64_t b = 0; b < count_; ++b)
    for (std::int64_t i = 0; i < n; ++i) {
      const Token t = token(b, i);
      tokens_.host().as<std::int32_t>()[b * n + i] = t.id;
      positions_.host().as<std::int32_t>()[b * n + i] = static_cast<std::int32_t>(t.position);
    }
}

StepContext Generator::sent(std::int64_t n) {
  tokens_.send(step_.compute);
  positions_.send(step_.compute);
  StepContext step = step_;
  Tensor positions = positions_.device();
  positions.shape = {count_, n};
  step.positions = positions;
  return step;
}

// Number of tokens at the start of every prompt that the cache holds, at most all but the last.
std::int64_t Generator::cached_front(std::span<const Prompt> prompts) const {
  std::int64_t front = std::numeric_limits<std::int64_t>::max();
  for (std::size_t b = 0; b < prompts.size(); ++b) {
    const auto& ids = prompts[b].ids;
    const auto same = std::ranges::mismatch(ids, cached_[b]).in1 - ids.begin();
    front = std::min({front, same, std::ssize(ids) - 1});
  }
  return front;
}

// Runs all prompts up to their last tokens. A shorter prompt is padded with tokens 0. Its next
// tokens overwrite their places in the cache before they attend to them.
void Generator::prefill(std::span<const Prompt> prompts) {
  const auto front = size_of(prompts).prefill;
  for (std::int64_t first = cached_front(prompts); first < front; first += piece_) {
    const auto n = std::min(piece_, front - first);
    set(n, [&](std::int64_t b, std::int64_t i) -> Token {
      const auto& ids = prompts[static_cast<std::size_t>(b)].ids;
      const auto at = first + i;
      return {at < std::ssize(ids) ? ids[static_cast<std::size_t>(at)] : 0, at};
    });
    model_.prefill(sent(n), tokens_.device().rows(0, count_ * n), cache_);
    step_.compute.synchronize();  // the host's arrays can be reused
  }
  for (std::size_t b = 0; b < prompts.size(); ++b)
    cached_[b].assign(prompts[b].ids.begin(), prompts[b].ids.end() - 1);
}

// Appends one token to each sequence; returns the logits after it, [count, Vp].
Tensor Generator::append(std::span<const Token> tokens) {
  set(1, [&](std::int64_t b, std::int64_t) { return tokens[static_cast<std::size_t>(b)]; });
  model_.predict(sent(1), logits_.device(), tokens_.device().rows(0, count_), &cache_);
  logits_.fetch(step_.compute);
  step_.compute.synchronize();
  for (std::size_t b = 0; b < tokens.size(); ++b) {
    cached_[b].resize(static_cast<std::size_t>(tokens[b].position));
    cached_[b].push_back(tokens[b].id);
  }
  return logits_.host();
}

void Generator::run(std::span<const Prompt> prompts, const Sampling& sampling,
                    FunctionRef<bool(std::size_t, std::int32_t)> emit) {
  LOCKSTEP_CHECK(std::ssize(prompts) == count_, prompts.size(), " prompts for ", count_);
  for (const Prompt& prompt : prompts)
    check(prompt, model_.config());
  Sampler sampler(sampling, static_cast<int>(model_.config().vocabulary));
  prefill(prompts);
  std::vector<Token> last;  // of each; an ended sequence is run again, unused
  std::vector<std::int64_t> left;
  for (const Prompt& prompt : prompts) {
    last.push_back({prompt.ids.back(), std::ssize(prompt.ids) - 1});
    left.push_back(prompt.tokens);
  }
  if (step_.compute.is_measuring()) {
    append(last);
    return;
  }
  while (std::ranges::any_of(left, [](auto n) { return n > 0; })) {
    const Tensor logits = append(last);
    const auto row = logits.shape[1];
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (left[i] == 0) continue;
      const auto drawn = static_cast<std::uint64_t>(prompts[i].tokens - left[i]);
      const std::int32_t token = sampler.draw(
          {logits.as<float>() + static_cast<std::int64_t>(i) * row, static_cast<std::size_t>(row)},
          prompts[i].number * Sampler::kMostDraws + drawn);
      left[i] = emit(i, token) ? left[i] - 1 : 0;
      last[i] = left[i] > 0 ? Token{token, last[i].position + 1} : last[i];
    }
  }
}

void generate(const StepContext& step, Transformer& model, Arena& pinned,
              std::span<const Prompt> prompts, const Sampling& sampling,
              FunctionRef<bool(std::size_t, std::int32_t)> emit) {
  for (const Prompt& prompt : prompts)
    check(prompt, model.config());
  const Arena::Scope scope(step.scratch), pinned_scope(pinned);
  Generator(step, model, pinned, size_of(prompts)).run(prompts, sampling, emit);
}

}  // namespace lockstep
