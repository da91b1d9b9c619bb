// Transformer: embedding, blocks, head. It knows neither data nor optimizer.
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
  // ConfigError where the configuration is not valid, or cannot be split over its tensor ranks.
  Transformer(ParamStore& params, const ModelConfig& config, const Options& options);

  const ModelConfig& config() const { return config_; }

  // Memory for micro-batches of the shape of `shape.positions`: the activations of `slots` of them
  // that are between forward and backward at once (1 without a pipeline; 0 to evaluate only).
  // `offload`: where layers' activations wait for backward instead, see Offload.
  void allocate(Arena& activations, const StepContext& shape, int slots,
                const Offload::To* offload = nullptr);

  // All asynchronous. inputs [N] int32. The head's loss and gradient are one pass, so backward of a
  // slot starts from what its forward left; both are called in turn, and add to gradients.
  // last: of the step's micro-batches, see ParamStore::reduce.
  void forward(const StepContext& step, int slot, ConstTensor inputs, const Targets& targets,
               bool last);
  void backward(const StepContext& step, int slot, ConstTensor inputs, bool last);

  // The loss alone: nothing is kept.
  void evaluate(const StepContext& step, ConstTensor inputs, const Targets& targets);

  // Keys and values of `sequences` sequences of at most `capacity` tokens, of every layer.
  struct Cache {
    std::vector<KvCache> layers;
    Tensor rope_table;
  };
  Cache allocate_cache(Arena& arena, Stream& stream, std::int64_t sequences,
                       std::int64_t capacity) const;

  // Logits of the last m tokens of each sequence: logits [B m, Vp] fp32, the same on all
  // tensor ranks.
  // inputs [B n]: n new tokens a sequence, at step.positions, which are appended to the cache:
  // prefill (n > 1) and decode (n = 1) alike. Without a cache: the logits of a whole micro-batch.
  void predict(const StepContext& step, Tensor logits, ConstTensor inputs,
               const Cache* cache = nullptr);

  // inputs [B n], appended to the cache as predict does: the beginning of texts, without their
  // logits.
  void prefill(const StepContext& step, ConstTensor inputs, const Cache& cache);

  // losses [B n] fp32 = -log p(target) behind each of n new tokens a sequence, 0 where targets [B
  // n] are -1; the same on all tensor ranks. The tokens are appended to the cache.
  void score(const StepContext& step, Tensor losses, ConstTensor inputs, ConstTensor targets,
             const Cache& cache);

  // In how many chunks forward makes the logits of N tokens.
  std::int64_t loss_chunks(std::int64_t N) const { return head_.chunks(N, dtype_); }

  std::int64_t stored_vocabulary() const { return head_.stored_vocabulary(); }  // Vp

 private:
  struct Slot {
    std::vector<Tensor> x;             // [L + 1] of [N, D]: what enters each block, and the head
    std::vector<Block::Saved> layers;  // [L]
    Offload offload;                   // where it is used, x and layers are rings
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
