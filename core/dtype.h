// DType lists the element types of tensors, with bfloat16, which C++20 does not have.
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep {

enum class DType : std::uint8_t { fp32, bf16, fp8_e4m3, fp8_e5m2, int32, uint8 };

constexpr std::int64_t bytes_per_element(DType t) {
  switch (t) {
    case DType::fp32:
    case DType::int32: return 4;
    case DType::bf16: return 2;
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::uint8: return 1;
  }
  return 0;
}

constexpr const char* name(DType t) {
  switch (t) {
    case DType::fp32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::fp8_e4m3: return "fp8_e4m3";
    case DType::fp8_e5m2: return "fp8_e5m2";
    case DType::int32: return "int32";
    case DType::uint8: return "uint8";
  }
  return "?";
}

// The upper half of an fp32: 8 exponent bits, 7 stored mantissa bits.
struct BFloat16 {
  std::uint16_t bits;
  friend bool operator==(BFloat16, BFloat16) = default;
};

LOCKSTEP_HOST_DEVICE constexpr float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
LOCKSTEP_HOST_DEVICE constexpr float to_float(float x) {
  return x;
}

// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
LOCKSTEP_HOST_DEVICE constexpr BFloat16 to_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::fp32;
};
template <>
struct dtype_of<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct dtype_of<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};

}  // namespace lockstep
