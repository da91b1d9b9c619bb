#include "model/mlp.h"

#include "kernels/gelu.h"
#include "kernels/swiglu.h"
#include "model/config.h"
#include "model/families.h"

namespace lockstep {
namespace {

Linear::Spec mlp_in_spec(const ModelConfig& c, const LayerNames& names) {
  Linear::Spec spec{.parts = {},
                    .inputs = c.width,
                    .split = Linear::Split::outputs,
                    .bias = c.mlp_bias,
                    .init_std = c.init_std};
  if (c.is_gated()) spec.parts.push_back({names.gate, c.mlp_width});
  spec.parts.push_back({names.up, c.mlp_width});
  return spec;
}

Linear::Spec mlp_down_spec(const ModelConfig& c, const LayerNames& names) {
  return {.parts = {{names.down, c.width}},
          .inputs = c.mlp_width,
          .split = Linear::Split::inputs,
          .bias = c.mlp_bias,
          .init_std = c.residual_init_std()};
}

}  // namespace

Mlp::Mlp(ParamStore& params, int unit, const ModelConfig& config, const LayerNames& names)
    : is_gated_(config.is_gated()),
      width_(config.mlp_width),
      in_(params, unit, mlp_in_spec(config, names)),
      down_(params, unit, mlp_down_spec(config, names)) {}

void Mlp::compute_hidden(const StepContext& step, const ParamStore::Use& w, const Saved& a,
                         const LinearInput& x, Tensor most) const {
  if (is_gated_) {
    in_.forward(step, w, a.in, x);
    swiglu_forward(step.compute, a.hidden, a.in, most);
  } else {
    in_.forward(step, w, a.hidden, x, {.pre_gelu = a.in, .absmax = most});
  }
}

void Mlp::recompute_hidden(const StepContext& step, const Saved& a) const {
  if (is_gated_)
    swiglu_forward(step.compute, a.hidden, a.in);
  else
    gelu_forward(step.compute, a.hidden, a.in);
}

void Mlp::project(const StepContext& step, const ParamStore::Use& w, Tensor y, const Saved& a,
                  ConstTensor residual, ConstTensor most) const {
  down_.forward(step, w, y, {a.hidden, most}, {.residual = residual});
}

Tensor Mlp::backward(const StepContext& step, const ParamStore::Use& w, const Gradient& gradient,
                     const Saved& a, const LinearInput& x, ConstTensor most,
                     FunctionRef<void()> recompute) const {
  const auto dhidden = step.scratch.allocate("dhidden", a.hidden.dtype, a.hidden.shape);
  const auto dx = step.scratch.allocate("dnorm2", x.values.dtype, x.values.shape);
  const auto din_most = most ? step.scratch.allocate("dmlp_in_absmax", DType::fp32, {1}) : Tensor{};
  auto din = dhidden;
  if (is_gated_) {
    down_.backward(step, w, dhidden, gradient, {a.hidden, most}, {}, {}, recompute);
    din = a.in;  // its values are no longer needed
    swiglu_backward(step.compute, din, dhidden, a.in, din_most);
  } else {
    down_.backward(step, w, din, gradient, {a.hidden, most}, a.in, din_most, recompute);
  }
  in_.backward(step, w, dx, {din, din_most}, x);
  return dx;
}

}  // namespace lockstep
