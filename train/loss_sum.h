// LossSum: what evaluation adds up, in a type that loses nothing over any number of tokens.
#pragma once

#include <cstdint>
#include <optional>

#include "core/function_ref.h"
#include "core/mirror.h"
#include "data/loader.h"
#include "model/transformer.h"

namespace lockstep {

struct LossSum {
  double loss = 0;  // nats
  std::int64_t tokens = 0;

  double mean() const;  // NaN without a token
};

// The windows of an evaluation of at most `tokens` tokens: whole ones, at least one; 0: all.
std::int64_t most_windows(std::int64_t tokens, std::int64_t sequence_length);

// The losses of one micro-batch; waits for the device. Nothing on a measuring stream.
//   loss [1] fp32, tokens [1] int32: overwritten
LossSum evaluate_batch(Transformer& model, const StepContext& step, const Batch& batch,
                       const Mirror& loss, const Mirror& tokens);

// The sum over all samples of a loader that does not repeat them, each once. `stop` is asked before
// each micro-batch; nothing where it says so.
std::optional<LossSum> evaluate_all(Loader& loader, Stream& compute,
                                    FunctionRef<LossSum(const Batch& batch)> evaluate,
                                    FunctionRef<bool()> stop);

}  // namespace lockstep
