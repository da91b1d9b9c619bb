// Makes fp8 matrices for tests and reads their elements.
#pragma once

#include "core/fp8.h"
#include "kernels/quantize.h"
#include "tests/testing.h"

namespace lockstep::testing {

inline float largest_fp8(DType type) {
  return type == DType::fp8_e4m3 ? 448.0f : 57344.0f;
}
inline std::uint8_t encode_fp8(DType type, float x) {
  return type == DType::fp8_e4m3 ? to_fp8<Fp8E4M3>(x).bits : to_fp8<Fp8E5M2>(x).bits;
}
inline double decode_fp8(ConstTensor q, std::int64_t i) {
  const auto bits = std::to_integer<std::uint8_t>(q.data[i]);
  return static_cast<double>(q.dtype == DType::fp8_e4m3 ? fp8_to_float(Fp8E4M3{bits})
                                                        : fp8_to_float(Fp8E5M2{bits}));
}

// The index in `scales` of the scale of element (r, c) of a matrix.
inline std::int64_t scale_index(Scaling scaling, const Shape& matrix, std::int64_t r,
                                std::int64_t c) {
  switch (scaling) {
    case Scaling::tensor: return 0;
    case Scaling::rows: return c / 128 * matrix[0] + r;
    case Scaling::blocks: return r / 128 * (((matrix[1] + 127) / 128 + 3) / 4 * 4) + c / 128;
  }
  return 0;
}

inline double value_fp8(const ConstFp8Matrix& m, std::int64_t r, std::int64_t c) {
  return decode_fp8(m.q, r * m.q.shape[1] + c) *
         get(m.scales, scale_index(m.scaling, m.q.shape, r, c));
}

inline Fp8Matrix poisoned_fp8(Bench& b, DType type, Scaling scaling, const Shape& shape) {
  return {b.poisoned(shape, type), b.poisoned(scales_shape(scaling, shape), DType::fp32), scaling};
}

// Any finite fp8 values; scales between 0.1 and 1.
inline Fp8Matrix random_fp8(Bench& b, DType type, Scaling scaling, const Shape& shape) {
  const Fp8Matrix m = poisoned_fp8(b, type, scaling, shape);
  const auto x = b.random(shape, DType::fp32, largest_fp8(type));
  for (std::int64_t i = 0; i < x.elements(); ++i)
    m.q.data[i] = static_cast<std::byte>(encode_fp8(type, x.as<float>()[i]));
  const auto s = b.random(m.scales.shape, DType::fp32);
  for (std::int64_t i = 0; i < s.elements(); ++i)
    Bench::set(m.scales, i, 0.1 + 0.9 * std::abs(get(s, i)));
  return m;
}

struct Fp8Case {
  DType type;
  Scaling scaling;
};
inline const auto kFp8Cases = ::testing::Values(
    Fp8Case{DType::fp8_e4m3, Scaling::tensor}, Fp8Case{DType::fp8_e4m3, Scaling::rows},
    Fp8Case{DType::fp8_e4m3, Scaling::blocks}, Fp8Case{DType::fp8_e5m2, Scaling::tensor},
    Fp8Case{DType::fp8_e5m2, Scaling::rows}, Fp8Case{DType::fp8_e5m2, Scaling::blocks});
inline std::string fp8_case_name(const Fp8Case& c) {
  static constexpr const char* kScalings[] = {"tensor", "rows", "blocks"};
  return str(name(c.type), "_", kScalings[static_cast<int>(c.scaling)]);
}

}  // namespace lockstep::testing
