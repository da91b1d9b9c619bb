#pragma once

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// q = fp8(x / scale), rounded to nearest even and saturating, with scale = absmax / largest finite
// (448 for E4M3, 57344 for E5M2), at least the smallest normal fp32, and 1 where absmax is 0.
// x is about q * scale.
//   q fp8_e4m3 or fp8_e5m2     scale [1] fp32, written, not absmax itself     x fp32 or bf16
//   absmax [1] fp32
// The bits are those of cuda_fp8.h's conversions. Source: Micikevicius et al. 2022,
// arXiv:2209.05433.
void quantize(Stream& stream, Tensor q, Tensor scale, ConstTensor x, ConstTensor absmax);

// The same with one scale for each block of 128 x 128 elements, from that block's own absmax.
//   q, x [R, C]       scales [ceil(R/128), ceil(C/128)] fp32, written
void quantize_blocks(Stream& stream, Tensor q, Tensor scales, ConstTensor x);
inline constexpr std::int64_t kQuantizeBlock = 128;

// y = q * scale; scale [1], or one a block as above.      y fp32 or bf16
void dequantize(Stream& stream, Tensor y, ConstTensor q, ConstTensor scale);

LOCKSTEP_KERNELS(  // arguments are already checked
    void quantize(Stream& stream, Tensor q, Tensor scale, ConstTensor x, ConstTensor absmax);
    void quantize_blocks(Stream& stream, Tensor q, Tensor scales, ConstTensor x);
    void dequantize(Stream& stream, Tensor y, ConstTensor q, ConstTensor scale);)

}  // namespace lockstep
