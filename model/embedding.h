// Embedding turns token ids into rows of width D; GPT-2 adds a row for each position.
#pragma once

#include <optional>

#include "kernels/embedding.h"
#include "model/config.h"
#include "model/step.h"

namespace lockstep {

// Rows of the vocabulary's matrices as stored. V is rounded up so that matmuls over the rows use
// whole vectors: to a multiple of 128 if that costs less than 3%, else of 16, and of 16 on each
// tensor rank. The rows after V are zero.
std::int64_t stored_vocabulary(const ModelConfig& config, std::int64_t tensor_ranks = 1);

class Embedding {
 public:
  // Declares its parameters in its own FSDP unit.
  Embedding(ParamStore& params, const ModelConfig& config);

  // y, dy [N/t, D], ids [N]. Tensor rank r holds the rows of the table from r Vp/t on.
  void forward(const StepContext& step, Tensor y, ConstTensor ids) const;
  void backward(const StepContext& step, ConstTensor dy, ConstTensor ids) const;  // adds gradients

  ParamId weight() const { return tokens_; }  // [V, D]: also the head's, if tied
  int unit() const { return tokens_.unit; }

 private:
  EmbeddingPart part(const StepContext& step) const;

  std::int64_t stored_vocabulary_;
  ParamId tokens_;
  std::optional<ParamId> positions_;
};

}  // namespace lockstep
