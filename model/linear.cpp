#include "model/linear.h"

#include "kernels/gelu.h"
#include "kernels/matmul.h"
#include "kernels/matmul_fp8.h"
#include "kernels/reduce.h"
#include "model/sequence.h"

namespace lockstep {
namespace {

// View of [N, H, K] as [N, H K].
template <class View>
View as_matrix(View t) {
  return t ? t.view({t.shape[0], t.elements() / t.shape[0]}) : t;
}

// Scratch for a matrix of activations or gradients that is multiplied with weights of a scaling.
Fp8Matrix allocate_fp8(Arena& scratch, const char* name, DType dtype, const Shape& shape,
                       Scaling weights) {
  const auto scaling = weights == Scaling::tensor ? Scaling::tensor : Scaling::rows;
  return {scratch.allocate(name, dtype, shape),
          scratch.allocate("fp8_scales", DType::fp32, scales_shape(scaling, shape)), scaling};
}

void quantize(const StepContext& step, const Fp8Matrix& matrix, const Fp8Matrix& transposed,
              const LinearInput& x) {
  const bool whole = (matrix ? matrix : transposed).scaling == Scaling::tensor;
  lockstep::quantize(step.compute, matrix, transposed, as_matrix(x.values),
                     whole ? x.absmax : ConstTensor{});
}

}  // namespace

Linear::Linear(ParamStore& params, int unit, const Spec& spec) : split_(spec.split) {
  std::vector<ParamSpec> weights, biases;
  const bool splits_outputs = spec.split == Split::outputs;
  for (const auto& part : spec.parts) {
    weights.push_back({.name = part.name + ".weight",
                       .shape = {part.outputs, spec.inputs},
                       .tensor_dim = splits_outputs ? 0 : 1,
                       .role = Role::matrix,
                       .init = Init::normal,
                       .init_std = spec.init_std,
                       .quantized = true});
    biases.push_back({.name = part.name + ".bias",
                      .shape = {part.outputs},
                      .tensor_dim = splits_outputs ? 0 : -1,
                      .role = Role::vector,
                      .init = Init::zeros});
  }
  weight_ = params.declare_stacked(unit, std::move(weights)).front();
  if (spec.bias) bias_ = params.declare_stacked(unit, std::move(biases)).front();
}

bool Linear::is_fp8(const StepContext& step, const ParamStore::Use& use) const {
  return step.fp8 != Fp8Matmuls::off && use.quantized(weight_).weight;
}

void Linear::forward(const StepContext& step, const ParamStore::Use& use, Tensor y,
                     const LinearInput& x, const LinearEpilogue& epilogue) const {
  const Arena::Scope scope(step.scratch);
  if (split_ == Split::local) return multiply(step, use, as_matrix(y), x, true, epilogue);
  if (split_ == Split::outputs)
    return multiply(step, use, as_matrix(y),
                    {gather_sequence(step, x.values), largest_of_ranks(step, x.absmax)}, true,
                    epilogue);
  const SequenceSum sum(step, as_matrix(y));
  if (sum.has_one_rank()) return multiply(step, use, as_matrix(y), x, true, epilogue);
  LOCKSTEP_CHECK(!epilogue.pre_gelu, "a GELU after a sum over ranks");
  multiply(step, use, sum.partial(), {x.values, largest_of_ranks(step, x.absmax)}, false, {});
  sum.finish(bias_ ? use.stacked(*bias_) : ConstTensor{}, epilogue.residual);
}

void Linear::multiply(const StepContext& step, const ParamStore::Use& use, Tensor y,
                      const LinearInput& x, bool with_bias, const LinearEpilogue& epilogue) const {
  const auto bias = with_bias && bias_ ? use.stacked(*bias_) : ConstTensor{};
  if (is_fp8(step, use)) return multiply_fp8(step, use, y, x, bias, epilogue);
  matmul_forward(step.compute, step.scratch, y, as_matrix(x.values), use.stacked(weight_),
                 {.bias = bias, .pre_gelu = epilogue.pre_gelu, .residual = epilogue.residual});
}

void Linear::multiply_fp8(const StepContext& step, const ParamStore::Use& use, Tensor y,
                          const LinearInput& x, ConstTensor bias,
                          const LinearEpilogue& epilogue) const {
  LOCKSTEP_CHECK(!epilogue.pre_gelu || !epilogue.residual, "a residual after a GELU in fp8");
  const Arena::Scope scope(step.scratch);
  const auto w = use.quantized(weight_);
  const Shape shape{y.shape[0], w.weight.q.shape[1]};
  const auto q = allocate_fp8(step.scratch, "x_fp8", DType::fp8_e4m3, shape, w.weight.scaling);
  quantize(step, q, {}, x);
  matmul_fp8(step.compute, step.scratch,
             {.y = epilogue.pre_gelu ? epilogue.pre_gelu : y,
              .a = q,
              .b = w.weight,
              .bias = bias,
              .residual = epilogue.residual,
              .fast = w.weight.scaling == Scaling::tensor});
  if (!epilogue.pre_gelu) return;
  gelu_forward(step.compute, y, epilogue.pre_gelu, epilogue.absmax);
}

void Linear::backward(const StepContext& step, const ParamStore::Use& use, Tensor dx,
                      const LinearInput& dy, const LinearInput& x, ConstTensor pre_gelu,
                      Tensor dx_absmax) const {
  const Arena::Scope scope(step.scratch);
  const auto dbias = bias_ ? step.params.stacked_grad(*bias_) : Tensor{};
  const bool has_one_rank = step.comms.tensor->size() == 1;
  if (has_one_rank || split_ == Split::local)
    return multiply_backward(step, use, as_matrix(dx), dy, x, dbias, pre_gelu, dx_absmax);
  if (split_ == Split::outputs) {
    LOCKSTEP_CHECK(!pre_gelu, "a GELU in front of a gathered sequence");
    const SequenceSum sum(step, as_matrix(dx));
    multiply_backward(step, use, sum.partial(), {dy.values, largest_of_ranks(step, dy.absmax)},
                      {gather_sequence(step, x.values), largest_of_ranks(step, x.absmax)}, dbias,
                      {}, {});
    return sum.finish({}, {}, dx_absmax);
  }
  // The bias's gradient covers this rank's tokens: the tensor axis sums it.
  if (dbias) sum_rows(step.compute, step.scratch, dbias, as_matrix(dy.values));
  multiply_backward(step, use, as_matrix(dx),
                    {gather_sequence(step, dy.values), largest_of_ranks(step, dy.absmax)},
                    {x.values, largest_of_ranks(step, x.absmax)}, {}, pre_gelu, dx_absmax);
}

void Linear::multiply_backward(const StepContext& step, const ParamStore::Use& use, Tensor dx,
                               const LinearInput& dy, const LinearInput& x, Tensor dbias,
                               ConstTensor pre_gelu, Tensor dx_absmax) const {
  if (is_fp8(step, use)) {
    multiply_backward_fp8(step, use, dx, dy, x, dbias);
    if (!pre_gelu) return;
    return gelu_backward(step.compute, dx, dx, as_matrix(pre_gelu), dx_absmax);
  }
  matmul_backward_weight(step.compute, step.scratch, step.params.stacked_grad(weight_), dbias,
                         as_matrix(dy.values), as_matrix(x.values));
  matmul_backward_input(step.compute, step.scratch, dx, as_matrix(dy.values), use.stacked(weight_),
                        pre_gelu);
}

void Linear::multiply_backward_fp8(const StepContext& step, const ParamStore::Use& use, Tensor dx,
                                   const LinearInput& dy, const LinearInput& x,
                                   Tensor dbias) const {
  const Arena::Scope scope(step.scratch);
  const auto w = use.quantized(weight_);
  const auto N = dx.shape[0], I = dx.shape[1], O = w.weight.q.shape[0];
  const auto allocate = [&](const char* name, DType dtype, const Shape& shape) {
    return allocate_fp8(step.scratch, name, dtype, shape, w.weight.scaling);
  };
  const auto gradients = step.params.fp8_gradients();
  const auto dy_q = allocate("dy_fp8", gradients, {N, O});
  const auto dy_t = allocate("dy_fp8_transposed", gradients, {O, N});
  const auto x_t = allocate("x_fp8_transposed", DType::fp8_e4m3, {I, N});
  quantize(step, dy_q, dy_t, dy);
  quantize(step, {}, x_t, x);
  if (dbias) sum_rows(step.compute, step.scratch, dbias, as_matrix(dy.values));
  const auto dweight = step.params.stacked_grad(weight_);
  matmul_fp8(step.compute, step.scratch, {.y = dweight, .a = dy_t, .b = x_t, .residual = dweight});
  matmul_fp8(step.compute, step.scratch, {.y = dx, .a = dy_q, .b = w.transposed});
}

}  // namespace lockstep
