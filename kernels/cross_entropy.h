#pragma once

#include <algorithm>

#include "kernels/dispatch.h"

namespace lockstep {

// CrossEntropy holds the arguments of the loss. A row n with 0 <= targets[n] has
//   loss = lse - logits[n, target],   lse = log sum_v exp(logits[n, v]) over v < vocabulary
// Columns after the vocabulary are padding and never count. A row with target -1 is masked: its
// loss is 0.
//   losses [n] fp32       logits [n, Vp] fp32 or bf16, Vp >= vocabulary       targets [n] int32
// If columns are divided over t ranks, logits are columns [first_column, first_column + Vp) of all
// columns. Some or none of them may be in the vocabulary. Each rank computes its parts. Then it
// computes the losses and the gradient of its own columns from the parts of all ranks, in rank
// order. Losses have the same bits on all ranks.
//   parts [t, n, 3] fp32, absent if logits have all columns
struct CrossEntropy {
  Tensor losses = {};  // cross_entropy_parts does not write them
  ConstTensor targets;
  int vocabulary = 0;
  float gradient_scale = 1.0f;  // on the gradient only: 1 / nominal tokens of a step
  float z_loss = 0.0f;          // adds z_loss * lse^2 to each loss (PaLM, arXiv:2204.02311, s. 5)
  int first_column = 0;
  ConstTensor parts = {};
};

// Computes parts[n] = the maximum m of the logits, the sum of exp(logits - m), and the logit of the
// target. If another rank has the target, its logit is 0. Without columns, and in masked rows,
// these are the lowest float, 0 and 0. Reads targets, vocabulary and first_column of args.
//   parts [n, 3] fp32
void cross_entropy_parts(Stream& stream, Tensor parts, ConstTensor logits,
                         const CrossEntropy& args);

// Writes losses and replaces logits by their gradient,
//   gradient_scale * (softmax - onehot(target) + 2 z_loss lse softmax);  0 in masked rows and
//   padding
void cross_entropy_gradient(Stream& stream, Tensor logits, const CrossEntropy& args);

// Writes losses only, without z_loss, as evaluation reports them.
void cross_entropy_loss(Stream& stream, ConstTensor logits, const CrossEntropy& args);

// Adds the sum of losses to loss_sum, and the number of targets >= 0 to valid_tokens, in a fixed
// order.
//   loss_sum [1] fp32      valid_tokens [1] int32      losses [n] fp32      targets [n] int32
void sum_losses(Stream& stream, Tensor loss_sum, Tensor valid_tokens, ConstTensor losses,
                ConstTensor targets);

LOCKSTEP_KERNELS(  // arguments are already checked
    void cross_entropy_parts(Stream& stream, Tensor parts, ConstTensor logits,
                             const CrossEntropy& args);
    void cross_entropy_gradient(Stream& stream, Tensor logits, const CrossEntropy& args);
    void cross_entropy_loss(Stream& stream, ConstTensor logits, const CrossEntropy& args);
    void sum_losses(Stream& stream, Tensor loss_sum, Tensor valid_tokens, ConstTensor losses,
                    ConstTensor targets);)

// Returns how many of Vp columns from first_column on are in the vocabulary.
inline int columns_of_vocabulary(const CrossEntropy& args, std::int64_t Vp) {
  return static_cast<int>(std::clamp<std::int64_t>(args.vocabulary - args.first_column, 0, Vp));
}

}  // namespace lockstep
