#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// Per row n with 0 <= targets[n]:   loss = lse - logits[n, target],   lse = log sum_v exp(logits)
// over v < vocabulary; columns behind it are padding and never count. A row with target -1 is
// masked: its loss is 0.
//   losses [n] fp32       logits [n, Vp] fp32 or bf16, Vp >= vocabulary       targets [n] int32
struct CrossEntropy {
  Tensor losses;
  ConstTensor targets;
  int vocabulary = 0;
  float gradient_scale = 1.0f;  // on the gradient only: 1 / nominal tokens of a step
  float z_loss = 0.0f;          // adds z_loss * lse^2 to each loss (PaLM, arXiv:2204.02311, s. 5)
};

// Writes losses and replaces logits by their gradient,
//   gradient_scale * (softmax - onehot(target) + 2 z_loss lse softmax);  0 in masked rows and
//   padding
void cross_entropy_gradient(Stream& stream, Tensor logits, const CrossEntropy& args);

// Writes losses only (without z_loss: what evaluation reports).
void cross_entropy_loss(Stream& stream, ConstTensor logits, const CrossEntropy& args);

// loss_sum += sum of losses, valid_tokens += number of targets >= 0, in a fixed order.
//   loss_sum [1] fp32      valid_tokens [1] int32      losses [n] fp32      targets [n] int32
void sum_losses(Stream& stream, Tensor loss_sum, Tensor valid_tokens, ConstTensor losses,
                ConstTensor targets);

LOCKSTEP_KERNELS(  // arguments are already checked
    void cross_entropy_gradient(Stream& stream, Tensor logits, const CrossEntropy& args);
    void cross_entropy_loss(Stream& stream, ConstTensor logits, const CrossEntropy& args);
    void sum_losses(Stream& stream, Tensor loss_sum, Tensor valid_tokens, ConstTensor losses,
                    ConstTensor targets);)

}  // namespace lockstep
