// Linear computes y = x W^T + b with a matrix of the model. It hides how numbers are multiplied
// (types, transposes, epilogues) and how a matrix is split over tensor ranks. Callers above this
// file do not know either, with one exception: code that makes the input of a matmul may be asked
// for its largest magnitude.
//
// In fp8, x and W are E4M3, and dy has the type ParamStore::fp8_gradients(). Each matrix is
// quantized once per orientation that a matmul reads: x in forward, its transpose in backward, dy
// both ways in one pass, W both ways once a step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "model/step.h"

namespace lockstep {

// Input of a matmul: a matrix and its absmax [1] = max |values|. If fp8 matmuls have one scale per
// tensor, the code that makes the matrix sets absmax. Otherwise absmax is ignored and may be
// absent.
struct LinearInput {
  ConstTensor values;
  ConstTensor absmax;

  LinearInput(Tensor t) : values(t) {}       // NOLINT(google-explicit-constructor)
  LinearInput(ConstTensor t) : values(t) {}  // NOLINT(google-explicit-constructor)
  LinearInput(ConstTensor t, ConstTensor most) : values(t), absmax(most) {}
  LinearInput(const Gradient& g)  // NOLINT(google-explicit-constructor)
      : values(g.values), absmax(g.absmax) {}
};

// Operations on the output of a matmul before it is stored; absent tensors are skipped.
struct LinearEpilogue {
  Tensor pre_gelu = {};       // [N, O]: receives x W^T + b, and y its GELU
  Tensor absmax = {};         // [1]: set to max |y|, after a GELU
  ConstTensor residual = {};  // [N, O]: added last
};

class Linear {
 public:
  // Layout of the matrix on t tensor ranks; with one rank all are y = x W^T + b:
  //   outputs: y [N, O/t] = gather(x [N/t, I]) W^T + b     gathers the sequence, splits the outputs
  //   inputs:  y [N/t, O] = scatter_sum(x [N, I/t] W^T) + b   sums over ranks, splits the sequence
  //   local:   y [N, O/t] = x [N, I] W^T; the caller gathers x, and sums dx
  enum class Split : std::uint8_t { outputs, inputs, local };

  struct Part {
    std::string name;  // without ".weight" and ".bias"
    std::int64_t outputs = 0;
  };
  struct Spec {
    std::vector<Part> parts;  // parts that read the same x are stacked: one matmul serves all
    std::int64_t inputs = 0;
    Split split = Split::outputs;
    bool bias = false;
    float init_std = 0.02f;
  };

  // Declares the parameters in `unit`.
  Linear(ParamStore& params, int unit, const Spec& spec);
  // Uses a matrix that is already declared: the head.
  explicit Linear(ParamId weight) : split_(Split::local), weight_(weight) {}

  // Split describes y and x; dimensions beyond two are flattened. y may be fp32 if x is bf16.
  void forward(const StepContext& step, const ParamStore::Use& use, Tensor y, const LinearInput& x,
               const LinearEpilogue& epilogue = {}) const;

  // Adds the gradients of W and b, and sets dx = dy W. If pre_gelu is given, dx is multiplied by
  // gelu'(pre_gelu), and in fp8 dx_absmax [1] is then set to max |dx|. dx may be x if Split is
  // local.
  // Collectives run beside matmuls that do not need their results (docs/parallelism.md).
  //   meanwhile: work before the matmuls, beside the all-gather of dy. It may write x, except if
  //              the tokens of x are gathered (Split::outputs).
  void backward(const StepContext& step, const ParamStore::Use& use, Tensor dx,
                const LinearInput& dy, const LinearInput& x, ConstTensor pre_gelu = {},
                Tensor dx_absmax = {}, FunctionRef<void()> meanwhile = kNothing) const;
  static constexpr auto kNothing = [] {};

  int unit() const { return weight_.unit; }

 private:
  // Multiplies in chunks, and sums each over tensor ranks.
  void multiply_and_sum(const StepContext& step, const ParamStore::Use& use, Tensor y,
                        const LinearInput& x, ConstTensor residual) const;
  // These multiply matrices of this rank only.
  void multiply(const StepContext& step, const ParamStore::Use& use, Tensor y, const LinearInput& x,
                bool with_bias, const LinearEpilogue& epilogue) const;
  // dy as both products of backward read it. In fp8 it is quantized in both orientations.
  struct OutputGradient {
    LinearInput whole;
    Fp8Matrix rows = {}, transposed = {};
  };
  OutputGradient prepare(const StepContext& step, const ParamStore::Use& use,
                         const LinearInput& dy) const;
  void multiply_backward_weight(const StepContext& step, const ParamStore::Use& use,
                                const OutputGradient& dy, const LinearInput& x, Tensor dbias) const;
  void multiply_backward_input(const StepContext& step, const ParamStore::Use& use, Tensor dx,
                               const OutputGradient& dy, ConstTensor pre_gelu,
                               Tensor dx_absmax) const;
  bool is_fp8(const StepContext& step, const ParamStore::Use& use) const;  // false for the head
  void multiply_fp8(const StepContext& step, const ParamStore::Use& use, Tensor y,
                    const LinearInput& x, ConstTensor bias, const LinearEpilogue& epilogue) const;

  Split split_;
  ParamId weight_;  // the first parameter of its stacked group
  std::optional<ParamId> bias_;
};

}  // namespace lockstep
