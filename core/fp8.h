// Fp8 has the two 8-bit floats of Micikevicius et al. 2022, arXiv:2209.05433, table 1. The bits
// equal those of the saturating conversions of cuda_fp8.h, also for NaNs (which lose their sign).
//
//   E4M3  1 sign, 4 exponent (bias 7), 3 mantissa bits; largest 448; no infinity; NaN 0x7f
//   E5M2  1 sign, 5 exponent (bias 15), 2 mantissa bits; largest 57344; infinity 0x7c; NaN
//   0x7d-0x7f
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "core/dtype.h"

namespace lockstep {

// Constants that map a format to fp32, for scalar and vector conversions. "Step" is the smallest
// positive number, which is the spacing of subnormals.
template <int mantissa_bits, int bias, std::uint32_t largest, std::uint32_t first_nan>
struct Fp8 {
  static constexpr int kShift = 23 - mantissa_bits;  // from an fp32 mantissa to this one
  static constexpr std::uint32_t kRebias = (127u - bias) << mantissa_bits;
  static constexpr std::uint32_t kSmallestNormal = 1u << mantissa_bits;
  static constexpr std::uint32_t kLargest = largest;
  static constexpr std::uint32_t kFirstNaN = first_nan;
  static constexpr std::uint32_t kNaN = 0x7f;
  static constexpr float kLargestValue = std::bit_cast<float>((largest + kRebias) << kShift);
  static constexpr float kSmallestNormalValue =
      std::bit_cast<float>((kSmallestNormal + kRebias) << kShift);
  static constexpr float kStep = kSmallestNormalValue / (1 << mantissa_bits);
  static constexpr float kStepIsUlp =
      kStep * (1 << 23);  // adding it rounds to a multiple of a step

  std::uint8_t bits;
  friend bool operator==(Fp8, Fp8) = default;
};
using Fp8E4M3 = Fp8<3, 7, 0x7e, 0x7f>;
using Fp8E5M2 = Fp8<2, 15, 0x7b, 0x7d>;

template <>
struct dtype_of<Fp8E4M3> {
  static constexpr DType value = DType::fp8_e4m3;
};
template <>
struct dtype_of<Fp8E5M2> {
  static constexpr DType value = DType::fp8_e5m2;
};

// Rounds to nearest, ties to even. Larger magnitudes, and infinity, saturate to the largest number.
template <class F>
LOCKSTEP_HOST_DEVICE constexpr F to_fp8(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const auto magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint8_t>(F::kNaN)};
  std::uint32_t code = 0;
  if (std::bit_cast<float>(magnitude) < F::kSmallestNormalValue) {
    const float rounded = std::bit_cast<float>(magnitude) + F::kStepIsUlp;
    code = std::bit_cast<std::uint32_t>(rounded) - std::bit_cast<std::uint32_t>(F::kStepIsUlp);
  } else {
    const auto half = (1u << (F::kShift - 1)) - 1 + (magnitude >> F::kShift & 1u);
    code = ((magnitude + half) >> F::kShift) - F::kRebias;
    if (code > F::kLargest) code = F::kLargest;
  }
  return {static_cast<std::uint8_t>(code | (u >> 24 & 0x80u))};
}

template <class F>
LOCKSTEP_HOST_DEVICE constexpr float fp8_to_float(F x) {
  const std::uint32_t code = x.bits & 0x7fu, sign = (x.bits & 0x80u) << 24;
  if (code >= F::kFirstNaN) return std::bit_cast<float>(0x7fffffffu);
  const float step = static_cast<float>(code) * F::kStep;
  std::uint32_t magnitude = (code + F::kRebias) << F::kShift;
  if (code > F::kLargest) magnitude = 0x7f800000u;
  if (code < F::kSmallestNormal) magnitude = std::bit_cast<std::uint32_t>(step);
  return std::bit_cast<float>(magnitude | sign);
}

// Divisor that scales numbers up to `absmax` to the range of F. It is never denormal, because
// flush-to-zero would make a denormal scale 0.
template <class F>
LOCKSTEP_HOST_DEVICE constexpr float fp8_scale(float absmax) {
  if (absmax == 0) return 1;
  return std::max(absmax / F::kLargestValue, std::numeric_limits<float>::min());
}

// Calls f with a value of the format's type, as with_float does.
template <class F>
void with_fp8(DType dtype, F&& f) {
  if (dtype == DType::fp8_e4m3) {
    f(Fp8E4M3{});
  } else {
    f(Fp8E5M2{});
  }
}

}  // namespace lockstep
