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

// Gathers x, and its largest magnitude, over tensor ranks. The magnitude comes first, because fp8
// matmuls need it for each chunk.
struct Gathering {
  FromRanks absmax;
  SequenceGather values;
  Gathering(const StepContext& step, const LinearInput& x)
      : absmax(start_largest(step, x.absmax)), values(step, as_matrix(x.values)) {}
  LinearInput wait(std::int64_t i) const { return {values.wait(i), absmax.wait()}; }
  LinearInput wait() const { return {values.wait(), absmax.wait()}; }
};

// x of this rank, with the largest magnitude of all ranks.
LinearInput with_largest(const StepContext& step, const LinearInput& x) {
  return {x.values, start_largest(step, x.absmax).wait()};
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
                       .quantized = true,
                       .grad_is_set = true});
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
  y = as_matrix(y);
  if (split_ == Split::inputs && step.comms.tensor->size() > 1) {
    LOCKSTEP_CHECK(!epilogue.pre_gelu, "a GELU after a sum over ranks");
    return multiply_and_sum(step, use, y, x, epilogue.residual);
  }
  if (split_ == Split::outputs) {
    const Gathering gathered(step, x);
    for (std::int64_t i = 0; i < step.chunks(); ++i)
      multiply(step, use, chunk_of(step, y, i), gathered.wait(i), true,
               {.pre_gelu = chunk_of(step, epilogue.pre_gelu, i),
                .residual = chunk_of(step, epilogue.residual, i)});
  } else {
    multiply(step, use, y, x, true, epilogue);
  }
  if (epilogue.pre_gelu && is_fp8(step, use))  // otherwise the matmul has computed it
    gelu_forward(step.compute, y, epilogue.pre_gelu, epilogue.absmax);
}

// y [N/t, O] = scatter_sum(x [N, I/t] W^T) + b + residual. The sum of a chunk runs beside the
// matmul of the next one.
void Linear::multiply_and_sum(const StepContext& step, const ParamStore::Use& use, Tensor y,
                              const LinearInput& x, ConstTensor residual) const {
  const SequenceSum sum(step, y);
  const auto whole = with_largest(step, x);
  const auto start = [&](std::int64_t i) {
    multiply(step, use, chunk_of(step, sum.partial(), i),
             {chunk_of(step, as_matrix(whole.values), i), whole.absmax}, false, {});
    return sum.start_chunk(i, bias_ ? use.stacked(*bias_) : ConstTensor{}, residual);
  };
  const auto last = step.chunks() - 1;
  for (std::int64_t i = 0; i < last; ++i)
    start(i);
  start(last).wait();
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
             {.y = epilogue.pre_gelu ? epilogue.pre_gelu : y,  // without the GELU
              .a = q,
              .b = w.weight,
              .bias = bias,
              .residual = epilogue.residual,
              .fast = w.weight.scaling == Scaling::tensor});
}

void Linear::backward(const StepContext& step, const ParamStore::Use& use, Tensor dx,
                      const LinearInput& dy, const LinearInput& x, ConstTensor pre_gelu,
                      Tensor dx_absmax, FunctionRef<void()> meanwhile) const {
  const Arena::Scope scope(step.scratch);
  const auto dbias = bias_ ? step.params.stacked_grad(*bias_) : Tensor{};
  const bool has_one_rank = step.comms.tensor->size() == 1;
  if (split_ == Split::outputs && !has_one_rank) {
    LOCKSTEP_CHECK(!pre_gelu, "a GELU in front of a gathered sequence");
    const SequenceSum sum(step, as_matrix(dx));
    const auto whole_dy = with_largest(step, dy);
    const Gathering gathered(step, x);
    meanwhile();
    const auto prepared = prepare(step, use, whole_dy);
    multiply_backward_input(step, use, sum.partial(), prepared, {}, {});
    const auto summed = sum.start({}, {}, dx_absmax);
    multiply_backward_weight(step, use, prepared, gathered.wait(), dbias);
    summed.wait();
  } else if (split_ == Split::inputs && !has_one_rank) {
    const Gathering gathered(step, dy);
    const auto x_absmax = start_largest(step, x.absmax);
    // The bias's gradient covers this rank's tokens: the tensor axis sums it.
    if (dbias) sum_rows(step.compute, step.scratch, dbias, as_matrix(dy.values));
    meanwhile();
    dx = as_matrix(dx);
    if (!is_fp8(step, use))
      for (std::int64_t i = 0; i < step.chunks(); ++i)
        multiply_backward_input(step, use, chunk_of(step, dx, i), {gathered.wait(i)},
                                chunk_of(step, pre_gelu, i), {});
    const auto prepared = prepare(step, use, gathered.wait());  // in fp8 both orientations at once
    if (is_fp8(step, use)) multiply_backward_input(step, use, dx, prepared, pre_gelu, dx_absmax);
    multiply_backward_weight(step, use, prepared, {x.values, x_absmax.wait()}, {});
  } else {
    meanwhile();
    const auto prepared = prepare(step, use, dy);
    multiply_backward_weight(step, use, prepared, x, dbias);  // before dx, which may be x
    multiply_backward_input(step, use, as_matrix(dx), prepared, pre_gelu, dx_absmax);
  }
}

Linear::OutputGradient Linear::prepare(const StepContext& step, const ParamStore::Use& use,
                                       const LinearInput& dy) const {
  if (!is_fp8(step, use)) return {dy};
  const auto values = as_matrix(dy.values);
  const auto N = values.shape[0], O = values.shape[1];
  const auto scaling = use.quantized(weight_).weight.scaling;
  const auto type = step.params.fp8_gradients();
  const OutputGradient prepared{
      dy, allocate_fp8(step.scratch, "dy_fp8", type, {N, O}, scaling),
      allocate_fp8(step.scratch, "dy_fp8_transposed", type, {O, N}, scaling)};
  quantize(step, prepared.rows, prepared.transposed, dy);
  return prepared;
}

void Linear::multiply_backward_weight(const StepContext& step, const ParamStore::Use& use,
                                      const OutputGradient& dy, const LinearInput& x,
                                      Tensor dbias) const {
  const auto [dweight, add] = step.params.weight_grad(weight_);
  const auto values = as_matrix(dy.whole.values), inputs = as_matrix(x.values);
  if (!is_fp8(step, use))
    return matmul_backward_weight(step.compute, step.scratch, dweight, dbias, values, inputs, add);
  const Arena::Scope scope(step.scratch);
  const auto x_t =
      allocate_fp8(step.scratch, "x_fp8_transposed", DType::fp8_e4m3,
                   {inputs.shape[1], inputs.shape[0]}, use.quantized(weight_).weight.scaling);
  quantize(step, {}, x_t, x);
  if (dbias) sum_rows(step.compute, step.scratch, dbias, values);
  matmul_fp8(step.compute, step.scratch,
             {.y = dweight, .a = dy.transposed, .b = x_t, .residual = add ? dweight : Tensor{}});
}

void Linear::multiply_backward_input(const StepContext& step, const ParamStore::Use& use, Tensor dx,
                                     const OutputGradient& dy, ConstTensor pre_gelu,
                                     Tensor dx_absmax) const {
  if (!is_fp8(step, use))
    return matmul_backward_input(step.compute, step.scratch, dx, as_matrix(dy.whole.values),
                                 use.stacked(weight_), pre_gelu);
  matmul_fp8(step.compute, step.scratch,
             {.y = dx, .a = dy.rows, .b = use.quantized(weight_).transposed});
  if (pre_gelu) gelu_backward(step.compute, dx, dx, as_matrix(pre_gelu), dx_absmax);
}

}  // namespace lockstep
