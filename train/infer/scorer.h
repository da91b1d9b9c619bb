// Scorer: how likely a model finds continuations of texts. A text runs through the model once; its
// continuations then take turns behind it, in the same places of its KV cache: each overwrites the
// one before, and none sees another. So T texts of C tokens with k continuations of n tokens cost
// the products of T (C + k n) tokens, where lm_eval's cost those of T k (C + n).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/function_ref.h"
#include "train/step/inference.h"

namespace lockstep {

struct ScoredText {
  std::vector<std::int32_t> tokens;                      // at least one
  std::vector<std::vector<std::int32_t>> continuations;  // each of at least one token

  std::int64_t longest() const;  // continuation, in tokens
  // Tokens that the model is given with the longest: its last one is only predicted.
  std::int64_t positions() const;
};

struct ScoreRequest {
  std::span<const ScoredText> texts;  // none has more positions() than the model
  std::int64_t tokens_at_once = 0;    // of a rank's KV cache, and of a pass through the model
  std::int64_t most_texts = 0;        // of a rank at once
};

// log p(continuation | text), in nats, of each text's continuations: the same on all ranks of the
// model. Texts are divided over the ranks that read data; all run through the same shapes, as ranks
// that gather weights together must. A NaN, or an infinity, where the weights are not those of a
// trained model. `progress` hears the share of the tokens that is done.
std::vector<std::vector<double>> score(Inference& model, const ScoreRequest& request,
                                       FunctionRef<void(double share)> progress);

}  // namespace lockstep
