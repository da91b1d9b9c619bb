// Linear: y = x W^T + b, a matrix of the model. How numbers are multiplied (types, transposes,
// epilogues) and how a matrix is split over tensor ranks stops here: nothing above this file knows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/step.h"

namespace lockstep {

// What happens to a product before it is stored; an absent tensor is left out.
struct LinearEpilogue {
  Tensor pre_gelu = {};       // [N, O]: receives x W^T + b, and y its GELU
  ConstTensor residual = {};  // [N, O]: added last
};

class Linear {
 public:
  // How the matrix lies on t tensor ranks. There is one so far (make_comms()), with which both are
  // y = x W^T + b; the collectives come with the ranks:
  //   outputs: y [N, O/t] = gather(x [N/t, I]) W^T + b     gathers the sequence, splits the outputs
  //   inputs:  y [N/t, O] = scatter_sum(x [N, I/t] W^T) + b   sums over ranks, splits the sequence
  enum class Split : std::uint8_t { outputs, inputs };

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
  explicit Linear(ParamId weight) : weight_(weight) {}

  // y [N, O], x [N, I]; further dimensions than two are joined. y may be fp32 where x is bf16.
  void forward(const StepContext& step, const ParamStore::Use& use, Tensor y, ConstTensor x,
               const LinearEpilogue& epilogue = {}) const;

  // Adds the gradients of W and b; dx = dy W, times gelu'(pre_gelu) where that is given. dx may be
  // x.
  void backward(const StepContext& step, const ParamStore::Use& use, Tensor dx, ConstTensor dy,
                ConstTensor x, ConstTensor pre_gelu = {}) const;

  int unit() const { return weight_.unit; }

 private:
  ParamId weight_;  // the first of its group
  std::optional<ParamId> bias_;
};

}  // namespace lockstep
