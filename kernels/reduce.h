#pragma once

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// out += sum of x^2, in two stages of fixed order: deterministic, whatever the threads. Sums longer
// than a few hundred terms are fp64.
//   out [1] fp32        x fp32 or bf16
void sum_of_squares(Stream& stream, Arena& scratch, Tensor out, ConstTensor x);

// out = max |x|; NaNs in x are left out.    out [1] fp32     x fp32 or bf16
void absmax(Stream& stream, Tensor out, ConstTensor x);

// out += the sum of the rows of x, in a fixed order.    out [C] fp32     x [R, C] fp32 or bf16
void sum_rows(Stream& stream, Arena& scratch, Tensor out, ConstTensor x);

LOCKSTEP_KERNELS(  // arguments are already checked
    void sum_of_squares(Stream& stream, Arena& scratch, Tensor out, ConstTensor x);
    void absmax(Stream& stream, Tensor out, ConstTensor x);
    void sum_rows(Stream& stream, Arena& scratch, Tensor out, ConstTensor x);)

}  // namespace lockstep
