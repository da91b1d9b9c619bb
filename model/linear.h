// Linear: y = x W^T + b, a matrix of the model. How numbers are multiplied (types, transposes,
// epilogues) and how a matrix is split over tensor ranks stops here: nothing above this file knows,
// but that makers of what products read may be asked for its largest magnitude.
//
// In fp8, forward multiplies x and W as E4M3, and backward x, W and dy as ParamStore's options say.
// Each is quantized once for each product that reads it another way round: x in forward, its
// transpose in backward, dy both ways in one pass, W both ways once a step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/step.h"

namespace lockstep {

// What a product reads: a matrix and, where products of fp8 have one scale a tensor, its maker's
// absmax [1] = max |values| (else ignored, and may be absent).
struct LinearInput {
  ConstTensor values;
  ConstTensor absmax;

  LinearInput(Tensor t) : values(t) {}       // NOLINT(google-explicit-constructor)
  LinearInput(ConstTensor t) : values(t) {}  // NOLINT(google-explicit-constructor)
  LinearInput(ConstTensor t, ConstTensor most) : values(t), absmax(most) {}
  LinearInput(const Gradient& g)  // NOLINT(google-explicit-constructor)
      : values(g.values), absmax(g.absmax) {}
};

// What happens to a product before it is stored; an absent tensor is left out.
struct LinearEpilogue {
  Tensor pre_gelu = {};       // [N, O]: receives x W^T + b, and y its GELU
  Tensor absmax = {};         // [1]: set to max |y|, behind a GELU
  ConstTensor residual = {};  // [N, O]: added last
};

class Linear {
 public:
  // How the matrix lies on t tensor ranks; with one all are y = x W^T + b:
  //   outputs: y [N, O/t] = gather(x [N/t, I]) W^T + b     gathers the sequence, splits the outputs
  //   inputs:  y [N/t, O] = scatter_sum(x [N, I/t] W^T) + b   sums over ranks, splits the sequence
  //   local:   y [N, O/t] = x [N, I] W^T; who calls it gathers x, and sums dx
  enum class Split : std::uint8_t { outputs, inputs, local };

  struct Part {
    std::string name;  // without ".weight" and ".bias"
    std::int64_t outputs = 0;
  };
  struct Spec {
    std::vector<Part> parts;  // several that read the same x are stacked: one product serves all
    std::int64_t inputs = 0;
    Split split = Split::outputs;
    bool bias = false;
    float init_std = 0.02f;
  };

  // Declares the parameters in `unit`.
  Linear(ParamStore& params, int unit, const Spec& spec);
  // A matrix that is declared already: the head.
  explicit Linear(ParamId weight) : split_(Split::local), weight_(weight) {}

  // y, x as Split says; further dimensions than two are joined. y may be fp32 where x is bf16.
  void forward(const StepContext& step, const ParamStore::Use& use, Tensor y, const LinearInput& x,
               const LinearEpilogue& epilogue = {}) const;

  // Adds the gradients of W and b; dx = dy W, times gelu'(pre_gelu) where that is given, and then
  // dx_absmax [1] is set to max |dx|. dx may be x.
  void backward(const StepContext& step, const ParamStore::Use& use, Tensor dx,
                const LinearInput& dy, const LinearInput& x, ConstTensor pre_gelu = {},
                Tensor dx_absmax = {}) const;

  int unit() const { return weight_.unit; }

 private:
  // Of matrices of this rank alone.
  void multiply(const StepContext& step, const ParamStore::Use& use, Tensor y, const LinearInput& x,
                bool with_bias, const LinearEpilogue& epilogue) const;
  void multiply_backward(const StepContext& step, const ParamStore::Use& use, Tensor dx,
                         const LinearInput& dy, const LinearInput& x, Tensor dbias,
                         ConstTensor pre_gelu, Tensor dx_absmax) const;
  bool is_fp8(const StepContext& step, const ParamStore::Use& use) const;  // the head is not
  void multiply_fp8(const StepContext& step, const ParamStore::Use& use, Tensor y,
                    const LinearInput& x, ConstTensor bias, const LinearEpilogue& epilogue) const;
  void multiply_backward_fp8(const StepContext& step, const ParamStore::Use& use, Tensor dx,
                             const LinearInput& dy, const LinearInput& x, Tensor dbias) const;

  Split split_;
  ParamId weight_;  // the first of its group
  std::optional<ParamId> bias_;
};

}  // namespace lockstep
