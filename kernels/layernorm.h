#pragma once

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// layernorm_forward computes s = x + residual and y = (s - mean) * rstd * weight + bias, row by
// row. rstd = 1 / sqrt(mean((s - mean)^2) + epsilon). If residual is absent, s is x, and `sum` must
// be absent too. The variance is computed around the mean, in two passes.
//   y, x, residual, sum [N, D]  fp32 or bf16, same type; sum receives s and may be x or residual
//   stats [N, 2] fp32: mean, rstd, kept for backward       weight, bias [D] type of x
//   absmax [1] fp32, if given: set to max |y|, ignoring NaNs
// Source: Ba et al. 2016, arXiv:1607.06450.
struct LayerNormForward {
  Tensor y, stats, sum;
  ConstTensor x, residual, weight, bias;
  float epsilon = 1e-5f;
  Tensor absmax = {};
};
void layernorm_forward(Stream& stream, const LayerNormForward& args);

// layernorm_backward computes, for the gradient dy of y and with z = (s - mean) * rstd:
//   dx += d(loss)/ds      dweight += sum over rows of dy * z      dbias += sum over rows of dy
// On entry dx holds the gradient that bypasses the norm.
//   dx, dy, s [N, D] same type        dweight, dbias [D] fp32
//   absmax [1] fp32, if given: set to max |dx|, ignoring NaNs
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
