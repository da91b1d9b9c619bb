#pragma once

#include "core/arena.h"
#include "kernels/quantize.h"

namespace lockstep {

// The product of two matrices in fp8, y = a b^T + residual + bias, where a and b stand for their
// codes times their scales. Sums are fp32, rounded once when stored. It serves the three products
// of a linear layer (kernels/matmul.h), each from matrices whose rows run along what is summed
// over:
//   forward          y  [N, O] = x    [N, I] W   [O, I]^T
//   backward, input  dx [N, I] = dy   [N, O] W^T [I, O]^T
//   backward, weight dW [O, I] = dy^T [O, N] x^T [I, N]^T
// All sizes are multiples of 16; with scales of rows or blocks the K of [R, K] and [C, K], and C,
// are multiples of 128. Scalings: both tensor; or a rows, and b rows or blocks. At most one is
// E5M2. On GPUs of compute capability 8.9 and later; rows and blocks: 9.0 alone.
struct MatmulFp8 {
  Tensor y;                   // [R, C] bf16 or fp32
  ConstFp8Matrix a;           // [R, K]
  ConstFp8Matrix b;           // [C, K]
  ConstTensor bias = {};      // [C] bf16, for y in bf16
  ConstTensor residual = {};  // [R, C] type of y; may be y
  // Sums stay in the tensor cores' registers, which hold about 14 bits on H100, in place of being
  // promoted to fp32 every few products: faster, and exact enough for forward. Scaling::tensor
  // only.
  bool fast = false;
};
void matmul_fp8(Stream& stream, Arena& scratch, const MatmulFp8& args);

LOCKSTEP_KERNELS(  // arguments are already checked
    void matmul_fp8(Stream& stream, Arena& scratch, const MatmulFp8& args);)

}  // namespace lockstep
