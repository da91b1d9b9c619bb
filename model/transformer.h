// Transformer consists of embedding, blocks and head. It does not depend on data or optimizer.
//
// Reading order: forward() and backward() here, then block.h, linear.h, head.h.
#pragma once

#include <vector>

#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"
#include "model/offload.h"

namespace lockstep {

class Transformer {
 public:
  struct Options {
    Recompute recompute = Recompute::none;
    Head::Options head = {};
  };

  // Declares every parameter in `params`, which is then ready for its allocate(). Throws
  // ConfigError if the configuration is not valid, or cannot be split over its tensor ranks.
  Transformer(ParamStore& params, const ModelConfig& config, const Options& options);

  const ModelConfig& config() const { return config_; }

  // Allocates memory for micro-batches of the shape of `shape.positions`. `slots` is the number of
  // micro-batches between forward and backward at once (1 without a pipeline; 0 to evaluate only).
  // `offload`: host memory for the layers' activations until backward, see Offload.
  void allocate(Arena& activations, const StepContext& shape, int slots,
                const Offload::To* offload = nullptr);

  // All calls are asynchronous. inputs [N] int32. The head computes loss and gradient in one pass,
  // so backward of a slot starts from the result of its forward. The two alternate, and both add to
  // gradients.
  // last: the last micro-batch of the step, see ParamStore::reduce.
  void forward(const StepContext& step, int slot, ConstTensor inputs, const Targets& targets,
               bool last);
  void backward(const StepContext& step, int slot, ConstTensor inputs, bool last);

  // Computes only the loss: nothing is kept.
  void evaluate(const StepContext& step, ConstTensor inputs, const Targets& targets);

  // Keys and values of every layer for `sequences` sequences of at most `capacity` tokens.
  struct Cache {
    std::vector<KvCache> layers;
    Tensor rope_table;
  };
  Cache allocate_cache(Arena& arena, Stream& stream, std::int64_t sequences,
                       std::int64_t capacity) const;

  // Computes the logits of the last m tokens of each sequence: logits [B m, Vp] fp32, the same on
  // all tensor ranks.
  // inputs [B n] are n new tokens per sequence, at step.positions. They are appended to the cache,
  // in prefill (n > 1) and decode (n = 1) alike. Without a cache it computes the logits of a whole
  // micro-batch.
  void predict(const StepContext& step, Tensor logits, ConstTensor inputs,
               const Cache* cache = nullptr);

  // Appends inputs [B n], the beginning of texts, to the cache as predict does, without their
  // logits.
  void prefill(const StepContext& step, ConstTensor inputs, const Cache& cache);

  // losses [B n] fp32 = -log p(target) after each of n new tokens per sequence, 0 where targets [B
  // n] are -1. All tensor ranks get the same values. The tokens are appended to the cache.
  void score(const StepContext& step, Tensor losses, ConstTensor inputs, ConstTensor targets,
             const Cache& cache);

  // Number of chunks in which forward makes the logits of N tokens.
  std::int64_t loss_chunks(std::int64_t N) const { return head_.chunks(N, dtype_); }

  std::int64_t stored_vocabulary() const { return head_.stored_vocabulary(); }  // Vp

 private:
  struct Slot {
    std::vector<Tensor> x;             // [L + 1] of [N, D]: input of each block and of the head
    std::vector<Block::Saved> layers;  // [L]
    Offload offload;                   // if it is used, x and layers are rings
    Gradient gradient;                 // [N, D], from the head back through the blocks
  };

  Slot& slot_of(int slot);
  StepContext with_table(const StepContext& step, ConstTensor rope_table) const;
  StepContext with_cache(const StepContext& step, const Cache* cache) const;
  Tensor allocate_rope_table(Arena& arena, Stream& stream, std::int64_t positions) const;
  Tensor run(const StepContext& step, ConstTensor inputs, const Cache* cache);
  Slot allocate_slot(Arena& arena, const StepContext& shape, const Offload::To* offload) const;

  ModelConfig config_;
  Options options_;
  DType dtype_;  // of weights and activations
  int tensor_ranks_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  Head head_;
  std::vector<int> units_;  // in the order of forward: the embedding's, each block's, the head's
  Tensor rope_table_;
  std::vector<Slot> slots_;
};

}  // namespace lockstep
