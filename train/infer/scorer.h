// Scorer computes the log-likelihood of continuations of texts. A text passes through the model
// once. Its continuations follow in turn, in the same places of the KV cache: each overwrites the
// previous one, and none attends to another. T texts of C tokens with k continuations of n tokens
// cost the matmuls of T (C + k n) tokens. In lm_eval they cost those of T k (C + n).
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

  std::int64_t longest() const;  // tokens of the longest continuation
  // Positions for the text and its longest continuation, whose last token is only predicted.
  std::int64_t positions() const;
};

struct ScoreRequest {
  std::span<const ScoredText> texts;  // with at most the model's number of positions()
  std::int64_t tokens_at_once = 0;    // tokens of a rank's KV cache, and of a forward pass
  std::int64_t most_texts = 0;        // largest number of texts of a forward pass, on a rank
};

// Returns log p(continuation | text) in nats, for each continuation of each text, the same on all
// ranks of the model. Texts are divided over the ranks that read data. All ranks use the same
// shapes, because they gather weights together. Values are NaN or infinite if the weights are not
// those of a trained model. `progress` is called with the completed share of the tokens.
std::vector<std::vector<double>> score(Inference& model, const ScoreRequest& request,
                                       FunctionRef<void(double share)> progress);

}  // namespace lockstep
