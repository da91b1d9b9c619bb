#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// Computes y = gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), GPT-2's form ("gelu_new").
//   y, x  same shape and type, fp32 or bf16; y may be x
//   absmax [1] fp32, if given: set to max |y|, ignoring NaNs; in backward to max |dx|
// Source: Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2.
void gelu_forward(Stream& stream, Tensor y, ConstTensor x, Tensor absmax = {});

// Computes dx = dy * gelu'(x).   dx may be dy.
void gelu_backward(Stream& stream, Tensor dx, ConstTensor dy, ConstTensor x, Tensor absmax = {});

LOCKSTEP_KERNELS(  // arguments are already checked
    void gelu_forward(Stream& stream, Tensor y, ConstTensor x, Tensor absmax);
    void gelu_backward(Stream& stream, Tensor dx, ConstTensor dy, ConstTensor x, Tensor absmax);)

}  // namespace lockstep
