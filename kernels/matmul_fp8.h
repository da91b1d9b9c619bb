#pragma once

#include "core/arena.h"
#include "kernels/quantize.h"

namespace lockstep {

// matmul_fp8 multiplies two fp8 matrices: y = a b^T + residual + bias, with a and b their fp8
// values times their scales. Sums are fp32, rounded once when stored. It computes the three matmuls
// of a linear layer (kernels/matmul.h). Rows of both operands run along the dimension that is
// summed:
//   forward          y  [N, O] = x    [N, I] W   [O, I]^T
//   backward, input  dx [N, I] = dy   [N, O] W^T [I, O]^T
//   backward, weight dW [O, I] = dy^T [O, N] x^T [I, N]^T
// All sizes are multiples of 16. With scales of rows or blocks, K of [R, K] and [C, K], and C, are
// multiples of 128. Scalings are both tensor, or rows for a and rows or blocks for b. At most one
// operand is E5M2. GPUs need compute capability 8.9 or later; rows and blocks need exactly 9.0.
struct MatmulFp8 {
  Tensor y;                   // [R, C] bf16 or fp32
  ConstFp8Matrix a;           // [R, K]
  ConstFp8Matrix b;           // [C, K]
  ConstTensor bias = {};      // [C] bf16, for y in bf16
  ConstTensor residual = {};  // [R, C] type of y; may be y
  // true: sums stay in the tensor cores' registers, which hold about 14 bits on H100, and are not
  // promoted to fp32 every few terms. This is faster, and exact enough for forward. It needs
  // Scaling::tensor.
  bool fast = false;
};
void matmul_fp8(Stream& stream, Arena& scratch, const MatmulFp8& args);

LOCKSTEP_KERNELS(  // arguments are already checked
    void matmul_fp8(Stream& stream, Arena& scratch, const MatmulFp8& args);)

}  // namespace lockstep
