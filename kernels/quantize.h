#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// Scaling states which numbers of a matrix [R, C] share a scale.
enum class Scaling : std::uint8_t {
  tensor,  // all: scales [1]
  rows,    // 128 neighbours in a row: scales [ceil(C / 128), R]
  blocks,  // 128 x 128: scales [ceil(R / 128), round_up(ceil(C / 128), 4)], the last columns unused
};
inline constexpr std::int64_t kScaledBlock = 128;
Shape scales_shape(Scaling scaling, const Shape& matrix);
// Returns the number that must divide the sizes of a matrix, so that it can be multiplied.
constexpr std::int64_t size_multiple(Scaling scaling) {
  return scaling == Scaling::tensor ? 16 : kScaledBlock;
}

// Fp8View is a matrix in fp8: x is about q * its scale. The layouts of scales are those that
// cuBLASLt reads.
template <class View>  // Tensor or ConstTensor
struct Fp8View {
  View q;       // [R, C] fp8_e4m3 or fp8_e5m2
  View scales;  // fp32
  Scaling scaling = Scaling::tensor;

  template <class Other>
  requires(std::is_same_v<Other, ConstTensor>&& std::is_same_v<View, Tensor>)
  operator Fp8View<Other>() const {  // NOLINT(google-explicit-constructor): as of Tensor
    return {q, scales, scaling};
  }
  explicit operator bool() const { return bool(q); }
};
using Fp8Matrix = Fp8View<Tensor>;
using ConstFp8Matrix = Fp8View<ConstTensor>;

// Computes q = fp8(x / scale), rounded to nearest even and saturating. The scale is the largest |x|
// of the numbers that share it, divided by the largest finite fp8 (448 for E4M3, 57344 for E5M2).
// It is at least the smallest normal fp32, and 1 if all numbers are 0. Writes q of x, of its
// transpose, or of both, and reads x once. With Scaling::rows, 128 neighbours in a row of the
// written matrix share a scale. The bits are those of cuda_fp8.h's conversions.
//   x [R, C] bf16, R and C multiples of 16       matrix [R, C], transposed [C, R]; or absent
//   absmax [1] fp32: max |x|, for Scaling::tensor, else absent
// Sources: Micikevicius et al. 2022, arXiv:2209.05433; DeepSeek-AI 2024, arXiv:2412.19437, section
// 3.3.2, for blocks.
void quantize(Stream& stream, const Fp8Matrix& matrix, const Fp8Matrix& transposed, ConstTensor x,
              ConstTensor absmax);

LOCKSTEP_KERNELS(  // arguments are already checked
    void quantize(Stream& stream, const Fp8Matrix& matrix, const Fp8Matrix& transposed,
                  ConstTensor x, ConstTensor absmax);)

}  // namespace lockstep
