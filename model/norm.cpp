#include "model/norm.h"

#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"

namespace lockstep {

Norm::Norm(ParamStore& params, int unit, const std::string& name, const ModelConfig& config)
    : is_layer_norm_(config.norm == ModelConfig::Norm::layer), epsilon_(config.norm_epsilon) {
  weight_ = params.declare(unit, {.name = name + ".weight",
                                  .shape = {config.width},
                                  .role = Role::vector,
                                  .init = Init::ones});
  if (is_layer_norm_)
    bias_ = params.declare(unit, {.name = name + ".bias",
                                  .shape = {config.width},
                                  .role = Role::vector,
                                  .init = Init::zeros});
}

Shape Norm::stats_shape(std::int64_t N) const {
  return is_layer_norm_ ? Shape{N, 2} : Shape{N};
}

void Norm::forward(const StepContext& step, const ParamStore::Use& use, Tensor y, Tensor stats,
                   ConstTensor x, Tensor absmax) const {
  forward(step, use, y, stats, {}, x, {}, absmax);
}

void Norm::add_forward(const StepContext& step, const ParamStore::Use& use, Tensor y, Tensor stats,
                       Tensor sum, ConstTensor x, Tensor absmax) const {
  forward(step, use, y, stats, sum, x, sum, absmax);
}

void Norm::forward(const StepContext& step, const ParamStore::Use& use, Tensor y, Tensor stats,
                   Tensor sum, ConstTensor x, ConstTensor residual, Tensor absmax) const {
  if (is_layer_norm_) {
    layernorm_forward(step.compute, {.y = y,
                                     .stats = stats,
                                     .sum = sum,
                                     .x = x,
                                     .residual = residual,
                                     .weight = use[weight_],
                                     .bias = use[*bias_],
                                     .epsilon = epsilon_,
                                     .absmax = absmax});
  } else {
    rmsnorm_forward(step.compute, {.y = y,
                                   .rstd = stats,
                                   .sum = sum,
                                   .x = x,
                                   .residual = residual,
                                   .weight = use[weight_],
                                   .epsilon = epsilon_,
                                   .absmax = absmax});
  }
}

void Norm::backward(const StepContext& step, const ParamStore::Use& use, const Gradient& gradient,
                    ConstTensor dy, ConstTensor x, ConstTensor stats) const {
  const auto dweight = step.params.grad(weight_);
  if (is_layer_norm_) {
    layernorm_backward(step.compute, step.scratch,
                       {.dx = gradient.values,
                        .dweight = dweight,
                        .dbias = step.params.grad(*bias_),
                        .dy = dy,
                        .s = x,
                        .stats = stats,
                        .weight = use[weight_],
                        .absmax = gradient.absmax});
  } else {
    rmsnorm_backward(step.compute, step.scratch,
                     {.dx = gradient.values,
                      .dweight = dweight,
                      .dy = dy,
                      .s = x,
                      .rstd = stats,
                      .weight = use[weight_],
                      .absmax = gradient.absmax});
  }
}

}  // namespace lockstep
