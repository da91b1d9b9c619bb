// Embedding: token ids become rows of width D; GPT-2 adds a row for each position.
#pragma once

#include <optional>

#include "kernels/embedding.h"
#include "model/config.h"
#include "model/step.h"

namespace lockstep {

// Rows of the vocabulary's matrices as stored: V rounded up, so that products over them run on
// whole vectors; to 128 where that costs less than 3%, else to 16, and to 16 on each tensor rank.
// The rows behind V are zero.
std::int64_t stored_vocabulary(const ModelConfig& config, std::int64_t tensor_ranks = 1);

class Embedding {
 public:
  // Declares its parameters in a unit of its own.
  Embedding(ParamStore& params, const ModelConfig& config);

  // y, dy [N/t, D], ids [N]. Tensor rank r has the rows of the table from r Vp/t on.
  void forward(const StepContext& step, Tensor y, ConstTensor ids) const;
  void backward(const StepContext& step, ConstTensor dy, ConstTensor ids) const;  // adds gradients

  ParamId weight() const { return tokens_; }  // [V, D]: also the head's, where that is tied
  int unit() const { return tokens_.unit; }

 private:
  EmbeddingPart part(const StepContext& step) const;

  std::int64_t stored_vocabulary_;
  ParamId tokens_;
  std::optional<ParamId> positions_;
};

}  // namespace lockstep
