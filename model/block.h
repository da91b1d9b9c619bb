// Block computes x + attention(norm(x)), then + mlp(norm(.)). Forward and backward are written out;
// mlp.h has those of the mlp.
//
// Dimensions: N tokens on this rank, D width, H query heads, G key/value heads, K head size,
// t tensor-parallel ranks. Between matrices activations are [N/t, D].
#pragma once

#include <optional>
#include <vector>

#include "kernels/attention.h"
#include "model/mlp.h"
#include "model/norm.h"

namespace lockstep {

class Block {
 public:
  // The activations that forward computes and backward reads. In a Saved, an absent tensor was not
  // kept.
  struct Saved {
    Tensor norm1, norm2, middle;  // [N/t, D]; middle = x + attention branch
    Tensor stats1, stats2;        // statistics of the norms, fp32
    Tensor raw_qkv;               // [N, (H+2G)/t, K]: before qk-norm, for families that have it
    Tensor qk_rstd;               // [N, (H+G)/t] fp32: for qk-norm
    Tensor qkv;                   // [N, (H+2G)/t, K]: q heads, k heads, v heads, rotated
    Tensor attention;             // [N, H/t, K]
    Tensor lse;                   // [B, H/t, T] fp32
    Mlp::Saved mlp;
    Tensor absmax;  // [4] fp32, for fp8 matmuls: of norm1, attention, norm2, hidden
  };

  // Declares the layer's parameters in its own FSDP unit.
  Block(ParamStore& params, const ModelConfig& config, std::int64_t layer);

  Saved allocate_saved(Arena& arena, const StepContext& step, Recompute recompute) const;
  std::vector<Tensor> tensors_of(Saved saved, const StepContext& step) const;  // the existing ones

  // y [N/t, D] may be x if nothing is saved. With a cache, the keys and values of these tokens are
  // appended to it, and the tokens attend to the cache.
  void forward(const StepContext& step, Tensor y, ConstTensor x, const Saved& saved,
               const KvCache* cache = nullptr) const;

  // gradient holds the gradient of y on entry, and of x on return. backward adds the parameters'
  // gradients. x and saved are those of forward; backward overwrites saved.
  void backward(const StepContext& step, const Gradient& gradient, ConstTensor x,
                const Saved& saved) const;

  int unit() const { return unit_; }

 private:
  Block(ParamStore& params, const ModelConfig& config, std::int64_t layer, const LayerNames& names);
  template <class Visit>
  void for_each_activation(const StepContext& step, Saved& a, Visit&& visit) const;
  Saved complete(const Saved& saved, const StepContext& step) const;

  void compute(const StepContext& step, const ParamStore::Use& w, const Saved& a, ConstTensor x,
               const KvCache* cache) const;
  void compute_cheap(const StepContext& step, const ParamStore::Use& w, const Saved& a,
                     ConstTensor x) const;
  void rotate(const StepContext& step, const ParamStore::Use& w, const Saved& a) const;
  // most: absent, or receives max |dqkv|.
  void rotate_backward(const StepContext& step, const ParamStore::Use& w, Tensor dqkv,
                       const Saved& a, Tensor most) const;
  void attend(const StepContext& step, const Saved& a, const KvCache* cache) const;
  void attention_branch_backward(const StepContext& step, const ParamStore::Use& w,
                                 const Gradient& gradient, const Saved& a, ConstTensor x) const;
  void mlp_branch_backward(const StepContext& step, const ParamStore::Use& w,
                           const Gradient& gradient, const Saved& a,
                           FunctionRef<void()> recompute) const;

  ModelConfig config_;
  bool has_rope_;
  int unit_;
  Norm norm1_, norm2_;
  Linear qkv_, out_;
  Mlp mlp_;
  std::optional<ParamId> q_norm_, k_norm_;
};

}  // namespace lockstep
