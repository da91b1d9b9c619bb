#include "model/linear.h"

#include "kernels/matmul.h"

namespace lockstep {
namespace {

// [N, H, K] as [N, H K].
template <class View>
View as_matrix(View t) {
  return t ? t.view({t.shape[0], t.elements() / t.shape[0]}) : t;
}

}  // namespace

Linear::Linear(ParamStore& params, int unit, const Spec& spec) {
  std::vector<ParamSpec> weights, biases;
  const bool splits_outputs = spec.split == Split::outputs;
  for (const auto& part : spec.parts) {
    weights.push_back({.name = part.name + ".weight",
                       .shape = {part.outputs, spec.inputs},
                       .tensor_dim = splits_outputs ? 0 : 1,
                       .role = Role::matrix,
                       .init = Init::normal,
                       .init_std = spec.init_std});
    biases.push_back({.name = part.name + ".bias",
                      .shape = {part.outputs},
                      .tensor_dim = splits_outputs ? 0 : -1,
                      .role = Role::vector,
                      .init = Init::zeros});
  }
  weight_ = params.declare_stacked(unit, std::move(weights)).front();
  if (spec.bias) bias_ = params.declare_stacked(unit, std::move(biases)).front();
}

void Linear::forward(const StepContext& step, const ParamStore::Use& use, Tensor y, ConstTensor x,
                     const LinearEpilogue& epilogue) const {
  const Trace::Span span(step.trace, Phase::gemm, step.compute);
  matmul_forward(step.compute, step.scratch, as_matrix(y), as_matrix(x), use.stacked(weight_),
                 {.bias = bias_ ? use.stacked(*bias_) : ConstTensor{},
                  .pre_gelu = epilogue.pre_gelu,
                  .residual = epilogue.residual});
}

void Linear::backward(const StepContext& step, const ParamStore::Use& use, Tensor dx,
                      ConstTensor dy, ConstTensor x, ConstTensor pre_gelu) const {
  const Trace::Span span(step.trace, Phase::gemm, step.compute);
  const auto dbias = bias_ ? step.params.stacked_grad(*bias_) : Tensor{};
  matmul_backward_weight(step.compute, step.scratch, step.params.stacked_grad(weight_), dbias,
                         as_matrix(dy), as_matrix(x));
  matmul_backward_input(step.compute, step.scratch, as_matrix(dx), as_matrix(dy),
                        use.stacked(weight_), pre_gelu);
}

}  // namespace lockstep
