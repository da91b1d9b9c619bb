// Generate: tokens one after the other, by the KV cache.
#pragma once

#include <cstdint>
#include <span>

#include "core/function_ref.h"
#include "model/transformer.h"
#include "train/sampler.h"

namespace lockstep {

struct GenerateRequest {
  std::span<const std::int32_t> prompt;  // at least one token
  std::int64_t tokens = 0;               // to generate at most
  Sampling sampling;
};

// Runs the prompt through the model in pieces, then samples token after token; `emit` gets each and
// answers whether to go on. Cache and logits come from step.scratch, what the host sees of them
// from `pinned`; both are given back. Of `step`, positions and document_start are not read. Throws
// UsageError where prompt and tokens together are longer than the model's positions, or a prompt
// token is not in the vocabulary. On a measuring stream, counts the memory and emits nothing.
void generate(const StepContext& step, Transformer& model, Arena& pinned,
              const GenerateRequest& request, FunctionRef<bool(std::int32_t token)> emit);

}  // namespace lockstep
