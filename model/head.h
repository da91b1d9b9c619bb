// Head is the final norm and the matrix that turns tokens into logits, either tied to the embedding
// or its own. Logits of all tokens at once would be the largest tensor of a run. Head therefore
// makes them chunk by chunk: each chunk becomes loss and gradient before the next one overwrites
// it.
#pragma once

#include <optional>

#include "kernels/cross_entropy.h"
#include "model/embedding.h"
#include "model/linear.h"
#include "model/norm.h"

namespace lockstep {

// The targets of a micro-batch, and the sums that its loss is added to.
struct Targets {
  ConstTensor ids;              // [N] int32, -1: ignored
  Tensor loss_sum;              // [1] fp32, accumulated: sum of the tokens' losses, in nats
  Tensor valid_tokens;          // [1] int32, accumulated: number of targets not ignored
  float gradient_scale = 1.0f;  // 1 / (nominal tokens per step)
};

class Head {
 public:
  struct Options {
    std::int64_t logits_bytes = std::int64_t{256} << 20;  // bound on a chunk's logits in scratch
    float z_loss = 0.0f;  // adds z_loss * lse^2 to each token's training loss
  };

  // Declares its parameters in its own FSDP unit. A tied head uses the embedding's weight.
  Head(ParamStore& params, const ModelConfig& config, const Embedding& embedding,
       const Options& options);

  // Computes the loss of x [N/t, D] and, in the same pass, gradient = d(loss sum *
  // gradient_scale)/dx. Adds the parameters' gradients.
  void loss_and_gradient(const StepContext& step, const Gradient& gradient, ConstTensor x,
                         const Targets& targets) const;

  // Computes only the loss, from fp32 logits and without z_loss.
  void loss(const StepContext& step, ConstTensor x, const Targets& targets) const;
  // The same per token: losses [N] fp32, 0 where targets [N] are -1. All tensor ranks get the same
  // values.
  void losses(const StepContext& step, Tensor losses, ConstTensor x, ConstTensor targets) const;

  // logits [n, Vp] fp32 of x [n, D], the same on all tensor ranks; columns from V on are padding.
  void logits(const StepContext& step, Tensor logits, ConstTensor x) const;
  std::int64_t stored_vocabulary() const { return tensor_ranks_ * columns_; }  // Vp

  // Number of chunks in which N tokens become logits of a type.
  std::int64_t chunks(std::int64_t N, DType logits_dtype) const;

  int unit() const { return unit_; }  // unit of the norm, and of the matrix if it is not tied

 private:
  // Describes the place of this rank's logits [n, Vp/t] in the whole. With several tensor ranks it
  // gathers their parts of the losses.
  CrossEntropy cross_entropy(const StepContext& step, ConstTensor logits, Tensor losses,
                             ConstTensor targets) const;
  void my_logits(const StepContext& step, Tensor logits, ConstTensor x) const;
  std::int64_t chunk_rows(std::int64_t N, DType logits_dtype) const;
  Tensor allocate_logits(const StepContext& step, DType dtype, std::int64_t rows) const;
  // Calls body(first, rows) for the chunks of N tokens with logits of a type.
  template <class Body>
  void for_each_chunk(std::int64_t N, DType logits_dtype, Body&& body) const;

  Options options_;
  int vocabulary_;
  std::int64_t tensor_ranks_, columns_;  // Vp/t: columns on each of t ranks
  int unit_;
  Norm norm_;
  Linear matrix_;
};

}  // namespace lockstep
