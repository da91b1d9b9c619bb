#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// Computes hidden = silu(gate) * up, with silu(a) = a / (1 + e^-a).
//   gate_up [N, 2F]: each row is gate [F], then up [F]      hidden [N, F] same type
//   absmax [1] fp32, if given: set to max |hidden|, ignoring NaNs; in backward to max |dgate_up|
// Source: Shazeer 2020, arXiv:2002.05202.
void swiglu_forward(Stream& stream, Tensor hidden, ConstTensor gate_up, Tensor absmax = {});

// Computes dgate = dhidden * up * silu'(gate) and dup = dhidden * silu(gate), with silu'(a) = s (1
// + a (1 - s)), s = 1 / (1 + e^-a).    dgate_up may be gate_up.
void swiglu_backward(Stream& stream, Tensor dgate_up, ConstTensor dhidden, ConstTensor gate_up,
                     Tensor absmax = {});

LOCKSTEP_KERNELS(  // arguments are already checked
    void swiglu_forward(Stream& stream, Tensor hidden, ConstTensor gate_up, Tensor absmax);
    void swiglu_backward(Stream& stream, Tensor dgate_up, ConstTensor dhidden, ConstTensor gate_up,
                         Tensor absmax);)

}  // namespace lockstep
