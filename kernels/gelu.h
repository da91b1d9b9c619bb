#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// y = gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), GPT-2's form ("gelu_new").
//   y, x  same shape and type, fp32 or bf16; y may be x
// Source: Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2.
void gelu_forward(Stream& stream, Tensor y, ConstTensor x);

// dx = dy * gelu'(x).   dx may be dy.
void gelu_backward(Stream& stream, Tensor dx, ConstTensor dy, ConstTensor x);

LOCKSTEP_KERNELS(  // arguments are already checked
    void gelu_forward(Stream& stream, Tensor y, ConstTensor x);
    void gelu_backward(Stream& stream, Tensor dx, ConstTensor dy, ConstTensor x);)

}  // namespace lockstep
