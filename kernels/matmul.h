#pragma once

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// The three products of a linear layer y = x W^T. Dimensions: N tokens, I inputs, O outputs.
// x, W and dy share one type, fp32 or bf16; sums are fp32, rounded once when stored. On the CPU the
// bits do not depend on the number of threads, and scratch takes about 2.1 MiB a thread; of forward
// with up to 16 tokens (decoding) none. Denormals count as 0. N may be 0, I and O not.

// What happens to a sum before it is stored; an absent tensor is left out.
struct MatmulEpilogue {
  ConstTensor bias = {};  // [O]  type of x: added to each row
  Tensor pre_gelu = {};   // [N, O] type of y: written as x W^T + bias, and y = gelu(that) instead
  ConstTensor residual = {};  // [N, O] type of y: added last; y may be it, without pre_gelu
};

// y = x W^T, then the epilogue. GELU is the tanh form (kernels/gelu.h).
//   y [N, O]  type of x, or fp32      x [N, I]      weight [O, I]
void matmul_forward(Stream& stream, Arena& scratch, Tensor y, ConstTensor x, ConstTensor weight,
                    const MatmulEpilogue& epilogue = {});

// dx = dy W, times gelu'(pre_gelu) where that is given.
//   dx [N, I]  type of dy             dy [N, O]     weight [O, I]     pre_gelu [N, I] type of dx
void matmul_backward_input(Stream& stream, Arena& scratch, Tensor dx, ConstTensor dy,
                           ConstTensor weight, ConstTensor pre_gelu = {});

// dweight += dy^T x;  dbias += sum over rows of dy, where dbias is given.
//   dweight [O, I] fp32     dbias [O] fp32     dy [N, O]     x [N, I]
void matmul_backward_weight(Stream& stream, Arena& scratch, Tensor dweight, Tensor dbias,
                            ConstTensor dy, ConstTensor x);

LOCKSTEP_KERNELS(  // arguments are already checked
    void matmul_forward(Stream& stream, Arena& scratch, Tensor y, ConstTensor x, ConstTensor weight,
                        const MatmulEpilogue& epilogue);
    void matmul_backward_input(Stream& stream, Arena& scratch, Tensor dx, ConstTensor dy,
                               ConstTensor weight, ConstTensor pre_gelu);
    void matmul_backward_weight(Stream& stream, Arena& scratch, Tensor dweight, Tensor dbias,
                                ConstTensor dy, ConstTensor x);)

}  // namespace lockstep
