#pragma once

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// rmsnorm_forward computes s = x + residual and y = s * rstd * weight, row by row.
// rstd = 1 / sqrt(mean(s^2) + epsilon). If residual is absent, s is x, and `sum` must be absent
// too.
//   y, x, residual, sum [N, D]  fp32 or bf16, same type; sum receives s and may be x or residual
//   rstd [N] fp32, kept for backward         weight [D] type of x
//   absmax [1] fp32, if given: set to max |y|, ignoring NaNs
// Sums are fp32; s is rounded to its type before it is normalised.
// Source: Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4.
struct RmsNormForward {
  Tensor y, rstd, sum;
  ConstTensor x, residual, weight;
  float epsilon = 1e-5f;
  Tensor absmax = {};
};
void rmsnorm_forward(Stream& stream, const RmsNormForward& args);

// rmsnorm_backward computes dx += d(loss)/ds for the gradient dy of y, and dweight += sum over rows
// of dy * s * rstd. On entry dx holds the gradient that bypasses the norm, so that this adds the
// residual's gradient too.
//   dx, dy, s [N, D] same type        dweight [D] fp32        rstd [N] fp32        weight [D]
//   absmax [1] fp32, if given: set to max |dx|, ignoring NaNs
// With g = dy * weight: ds = rstd * (g - s * rstd^2 * mean(g * s)).
struct RmsNormBackward {
  Tensor dx, dweight;
  ConstTensor dy, s, rstd, weight;
  Tensor absmax = {};
};
void rmsnorm_backward(Stream& stream, Arena& scratch, const RmsNormBackward& args);

LOCKSTEP_KERNELS(  // arguments are already checked
    void rmsnorm_forward(Stream& stream, const RmsNormForward& args);
    void rmsnorm_backward(Stream& stream, Arena& scratch, const RmsNormBackward& args);)

}  // namespace lockstep
