#pragma once

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// s = x + residual, y = (s - mean) * rstd * weight + bias, row by row, with
// rstd = 1 / sqrt(mean((s - mean)^2) + epsilon). Without a residual (absent), s is x and `sum` must
// be absent too. The variance is taken around the mean, in two passes.
//   y, x, residual, sum [N, D]  fp32 or bf16, same type; sum receives s and may be x or residual
//   stats [N, 2] fp32: mean, rstd, kept for backward       weight, bias [D] type of x
//   absmax [1] fp32, where given: set to max |y|, NaNs left out
// Source: Ba et al. 2016, arXiv:1607.06450.
struct LayerNormForward {
  Tensor y, stats, sum;
  ConstTensor x, residual, weight, bias;
  float epsilon = 1e-5f;
  Tensor absmax = {};
};
void layernorm_forward(Stream& stream, const LayerNormForward& args);

// dx += d(loss)/ds for the gradient dy of y (dx holds what arrives past the norm);
// dweight += sum over rows of dy * z,  dbias += sum over rows of dy,  z = (s - mean) * rstd.
//   dx, dy, s [N, D] same type        dweight, dbias [D] fp32
//   absmax [1] fp32, where given: set to max |dx|, NaNs left out
// With g = dy * weight: ds = rstd * (g - mean(g) - z * mean(g * z)).
struct LayerNormBackward {
  Tensor dx, dweight, dbias;
  ConstTensor dy, s, stats, weight;
  Tensor absmax = {};
};
void layernorm_backward(Stream& stream, Arena& scratch, const LayerNormBackward& args);

LOCKSTEP_KERNELS(  // arguments are already checked
    void layernorm_forward(Stream& stream, const LayerNormForward& args);
    void layernorm_backward(Stream& stream, Arena& scratch, const LayerNormBackward& args);)

}  // namespace lockstep
