// Norm is LayerNorm or RMSNorm over the width, depending on the family.
#pragma once

#include <optional>
#include <string>

#include "model/config.h"
#include "model/step.h"

namespace lockstep {

class Norm {
 public:
  // Declares "NAME.weight" and, for LayerNorm, "NAME.bias" in `unit`.
  Norm(ParamStore& params, int unit, const std::string& name, const ModelConfig& config);

  // Shape of the fp32 statistics of N rows that backward reads: rstd, or mean and rstd.
  Shape stats_shape(std::int64_t N) const;

  // y = norm(x) [N, D].  absmax [1], if given: set to max |y|.
  void forward(const StepContext& step, const ParamStore::Use& use, Tensor y, Tensor stats,
               ConstTensor x, Tensor absmax = {}) const;

  // sum += x, then y = norm(sum): adds a branch to the residual stream and normalizes in one pass.
  void add_forward(const StepContext& step, const ParamStore::Use& use, Tensor y, Tensor stats,
                   Tensor sum, ConstTensor x, Tensor absmax = {}) const;

  // gradient += d(loss)/dx for the gradient dy of y: the gradient that bypasses the norm is already
  // in it. Adds the gradients of weight and bias.
  void backward(const StepContext& step, const ParamStore::Use& use, const Gradient& gradient,
                ConstTensor dy, ConstTensor x, ConstTensor stats) const;

 private:
  void forward(const StepContext& step, const ParamStore::Use& use, Tensor y, Tensor stats,
               Tensor sum, ConstTensor x, ConstTensor residual, Tensor absmax) const;

  bool is_layer_norm_;
  float epsilon_;
  ParamId weight_;
  std::optional<ParamId> bias_;  // only for LayerNorm
};

}  // namespace lockstep
