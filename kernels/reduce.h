#pragma once

#include <span>

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// Adds the sum of the squares of all tensors to out, in two stages of fixed order. The result does
// not depend on the threads. Sums longer than a few hundred terms are fp64.
//   out [1] fp32        tensors fp32 or bf16, all of one type
void sum_of_squares(Stream& stream, Arena& scratch, Tensor out,
                    std::span<const ConstTensor> tensors);

// Computes out = max |x|, ignoring NaNs in x.    out [1] fp32     x fp32 or bf16
void absmax(Stream& stream, Tensor out, ConstTensor x);

// Adds the sum of the rows of x to out, in a fixed order.    out [C] fp32     x [R, C] fp32 or bf16
void sum_rows(Stream& stream, Arena& scratch, Tensor out, ConstTensor x);

LOCKSTEP_KERNELS(  // arguments are already checked
    void sum_of_squares(Stream& stream, Arena& scratch, Tensor out,
                        std::span<const ConstTensor> tensors);
    void absmax(Stream& stream, Tensor out, ConstTensor x);
    void sum_rows(Stream& stream, Arena& scratch, Tensor out, ConstTensor x);)

}  // namespace lockstep
