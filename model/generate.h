// Generate: tokens one after the other, by the KV cache, behind one prompt or several.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/function_ref.h"
#include "model/sampler.h"
#include "model/transformer.h"

namespace lockstep {

struct Prompt {
  std::vector<std::int32_t> ids;  // at least one
  std::int64_t tokens = 0;        // to generate at most
  std::uint64_t number = 0;       // below 2^32; its random numbers are those of (seed, number)
};

// Runs the prompts through the model in pieces, then samples token after token behind each. `emit`
// gets each and answers whether its sequence goes on. What comes of a prompt does not depend on the
// others, beyond the rounding of sums. Cache and logits come from step.scratch, what the host sees
// of them from `pinned`; both are given back. Of `step`, positions and document_start are not read.
// Throws UsageError where a prompt and its tokens together are longer than the model's positions,
// or a prompt token is not in the vocabulary. On a measuring stream, counts the memory and emits
// nothing.
void generate(const StepContext& step, Transformer& model, Arena& pinned,
              std::span<const Prompt> prompts, const Sampling& sampling,
              FunctionRef<bool(std::size_t prompt, std::int32_t token)> emit);

}  // namespace lockstep
