#pragma once

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// These are the three matmuls of a linear layer y = x W^T. Dimensions: N tokens, I inputs, O
// outputs. N may be 0, I and O not. x, W and dy share one type, fp32 or bf16; sums are fp32,
// rounded once when stored. Denormals count as 0. On the CPU the bits do not depend on the number
// of threads. Scratch takes about 2.1 MiB per thread; forward with up to 16 tokens (decoding) needs
// none.

// MatmulEpilogue describes the operations on a sum before it is stored. An absent tensor is
// skipped.
struct MatmulEpilogue {
  ConstTensor bias = {};  // [O]  type of x: added to each row
  Tensor pre_gelu = {};   // [N, O] type of y: set to x W^T + bias; the sum becomes gelu(pre_gelu)
  ConstTensor residual = {};  // [N, O] type of y: added last; may be y if pre_gelu is absent
};

// Computes y = x W^T and applies the epilogue. GELU is the tanh form (kernels/gelu.h).
//   y [N, O]  type of x, or fp32      x [N, I]      weight [O, I]
void matmul_forward(Stream& stream, Arena& scratch, Tensor y, ConstTensor x, ConstTensor weight,
                    const MatmulEpilogue& epilogue = {});

// Computes dx = dy W, times gelu'(pre_gelu) if given.
//   dx [N, I]  type of dy             dy [N, O]     weight [O, I]     pre_gelu [N, I] type of dx
void matmul_backward_input(Stream& stream, Arena& scratch, Tensor dx, ConstTensor dy,
                           ConstTensor weight, ConstTensor pre_gelu = {});

// Computes dweight += dy^T x, and dbias += sum over rows of dy if dbias is given. Without `add` it
// sets dweight instead.
//   dweight [O, I] fp32     dbias [O] fp32     dy [N, O]     x [N, I]
void matmul_backward_weight(Stream& stream, Arena& scratch, Tensor dweight, Tensor dbias,
                            ConstTensor dy, ConstTensor x, bool add = true);

LOCKSTEP_KERNELS(  // arguments are already checked
    void matmul_forward(Stream& stream, Arena& scratch, Tensor y, ConstTensor x, ConstTensor weight,
                        const MatmulEpilogue& epilogue);
    void matmul_backward_input(Stream& stream, Arena& scratch, Tensor dx, ConstTensor dy,
                               ConstTensor weight, ConstTensor pre_gelu);
    void matmul_backward_weight(Stream& stream, Arena& scratch, Tensor dweight, Tensor dbias,
                                ConstTensor dy, ConstTensor x, bool add);)

}  // namespace lockstep
