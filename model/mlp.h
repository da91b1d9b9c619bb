// Mlp is the feed-forward half of a block, y = residual + hidden W_down^T (+ bias), where
//   gated:  hidden = silu(gate) * up, with [gate; up] = x W_in^T
//   else:   hidden = GELU(x W_in^T + bias)
//
// Dimensions: N tokens on this rank, D width, F mlp width, t tensor-parallel ranks.
#pragma once

#include "model/linear.h"
#include "model/recompute.h"

namespace lockstep {

struct LayerNames;
struct ModelConfig;

class Mlp {
 public:
  // The activations that forward computes and backward reads.
  struct Saved {
    Tensor in;      // [N, 2F/t]: gate, up; or [N, F/t]: GELU's argument
    Tensor hidden;  // [N, F/t]
  };

  // Declares its parameters in `unit`.
  Mlp(ParamStore& params, int unit, const ModelConfig& config, const LayerNames& names);

  // Calls visit(tensor, name, type, shape, most) for each tensor in `a`, which is kept up to
  // recompute `most`.
  template <class Visit>
  void for_each_activation(const StepContext& step, Saved& a, Visit&& visit) const {
    const auto N = step.tokens(), F = width_ / step.comms.tensor->size();
    const auto type = step.params.compute_dtype();
    visit(a.in, "mlp_in", type, Shape{N, is_gated_ ? 2 * F : F}, Recompute::cheap);
    visit(a.hidden, "hidden", type, Shape{N, F}, Recompute::none);
  }

  // compute_hidden computes `a` from x [N/t, D]; project computes y [N/t, D] from a.hidden.
  //   most [1], if given: max |hidden|; compute_hidden sets it, project and backward read it
  void compute_hidden(const StepContext& step, const ParamStore::Use& w, const Saved& a,
                      const LinearInput& x, Tensor most) const;
  void project(const StepContext& step, const ParamStore::Use& w, Tensor y, const Saved& a,
               ConstTensor residual, ConstTensor most) const;

  void recompute_hidden(const StepContext& step, const Saved& a) const;  // from a.in

  // backward returns dx [N/t, D] for the gradient of y, allocated in the caller's scope of scratch.
  // It adds the parameters' gradients, and overwrites a.in.
  //   recompute: writes what was not kept of x and `a`; see `meanwhile` of Linear::backward
  Tensor backward(const StepContext& step, const ParamStore::Use& w, const Gradient& gradient,
                  const Saved& a, const LinearInput& x, ConstTensor most,
                  FunctionRef<void()> recompute) const;

 private:
  bool is_gated_;
  std::int64_t width_;  // F
  Linear in_, down_;
};

}  // namespace lockstep
