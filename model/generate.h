// Generate samples tokens one after another with the KV cache, for one prompt or several.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/function_ref.h"
#include "model/sampler.h"
#include "model/transformer.h"

namespace lockstep {

struct Prompt {
  std::vector<std::int32_t> ids;  // at least one token
  std::int64_t tokens = 0;        // maximum number of tokens to generate
  std::uint64_t number = 0;       // below 2^32; selects the random numbers of (seed, number)
};

// Runs the prompts through the model in pieces, then samples one token after another for each.
// `emit` receives each token and returns whether its sequence continues. The result of a prompt
// does not depend on the other prompts, except for the rounding of sums.
//
// Cache and logits are allocated from step.scratch, and their host copies from `pinned`; both are
// released on return. generate does not read positions and document_start of `step`. It throws
// UsageError if a prompt and its tokens together exceed the model's positions, or if a prompt token
// is not in the vocabulary. On a measuring stream it counts the memory and emits nothing.
void generate(const StepContext& step, Transformer& model, Arena& pinned,
              std::span<const Prompt> prompts, const Sampling& sampling,
              FunctionRef<bool(std::size_t prompt, std::int32_t token)> emit);

}  // namespace lockstep
