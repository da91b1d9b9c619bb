// Generate samples tokens one after another with the KV cache, for one prompt or several.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/function_ref.h"
#include "core/mirror.h"
#include "model/sampler.h"
#include "model/transformer.h"

namespace lockstep {

struct Prompt {
  std::vector<std::int32_t> ids;  // at least one token
  std::int64_t tokens = 0;        // maximum number of tokens to generate
  std::uint64_t number = 0;       // below 2^32; selects the random numbers of (seed, number)
};

// Generator holds sequences of tokens in a KV cache, which it keeps from call to call.
class Generator {
 public:
  struct Size {
    std::int64_t sequences = 1;  // prompts of each call
    std::int64_t capacity = 0;   // maximum number of tokens of a prompt and its generated tokens
    std::int64_t prefill = 0;    // maximum number of prompt tokens that a call may compute
  };
  // Allocates cache and logits from step.scratch, and their host copies from `pinned`. Does not
  // read positions and document_start of `step`.
  Generator(const StepContext& step, Transformer& model, Arena& pinned, const Size& size);

  // Runs the prompts through the model in pieces, then samples one token after another for each.
  // `emit` receives each token and returns whether its sequence continues. The result of a prompt
  // does not depend on other prompts or earlier calls, except for the rounding of sums. Tokens at
  // the start of a prompt that the cache already has are not computed again. Throws UsageError if a
  // prompt and its tokens together exceed the model's positions, or if a prompt token is not in the
  // vocabulary. On a measuring stream it counts the memory and emits nothing.
  void run(std::span<const Prompt> prompts, const Sampling& sampling,
           FunctionRef<bool(std::size_t prompt, std::int32_t token)> emit);

 private:
  struct Token {
    std::int32_t id = 0;
    std::int64_t position = 0;
  };
  Mirror mirror(const char* name, DType dtype, const Shape& shape, Arena& pinned) const;
  std::int64_t cached_front(std::span<const Prompt> prompts) const;
  void prefill(std::span<const Prompt> prompts);
  Tensor append(std::span<const Token> tokens);
  void set(std::int64_t n, FunctionRef<Token(std::int64_t b, std::int64_t i)> token);
  StepContext sent(std::int64_t n);

  StepContext step_;
  Transformer& model_;
  std::int64_t count_, piece_;
  Transformer::Cache cache_;
  std::vector<std::vector<std::int32_t>> cached_;  // tokens of each sequence in the cache
  Mirror tokens_, positions_, logits_;
};

// Runs the prompts with a Generator of their sizes, whose memory is released on return.
void generate(const StepContext& step, Transformer& model, Arena& pinned,
              std::span<const Prompt> prompts, const Sampling& sampling,
              FunctionRef<bool(std::size_t prompt, std::int32_t token)> emit);

}  // namespace lockstep
