#include "core/fp8.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/hash.h"
#include "core/philox.h"

#if LOCKSTEP_HAVE_CUDA_FP8
#include <cuda_fp8.h>
#endif

namespace lockstep::fp8_test {

// The value of an fp8 code by definition, sign 2^(exponent - bias) 1.mantissa, in float64.
double defined_value(int code, int mantissa_bits, int bias) {
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const int exponent = (code & 0x7f) >> mantissa_bits;
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

struct E4M3 {
  using Type = Fp8E4M3;
  static constexpr int kLargest = 0x7e;
  static bool is_nan(int code) { return (code & 0x7f) == 0x7f; }
  static bool is_infinite(int) { return false; }
  static double value(int code) { return defined_value(code, 3, 7); }
};
struct E5M2 {
  using Type = Fp8E5M2;
  static constexpr int kLargest = 0x7b;
  static bool is_nan(int code) { return (code & 0x7f) > 0x7c; }
  static bool is_infinite(int code) { return (code & 0x7f) == 0x7c; }
  static double value(int code) { return defined_value(code, 2, 15); }
};

template <class Format>
class Fp8Format : public ::testing::Test {};
using Formats = ::testing::Types<E4M3, E5M2>;
TYPED_TEST_SUITE(Fp8Format, Formats);

template <class Format>
int encode(float x) {
  return to_fp8<typename Format::Type>(x).bits;
}
template <class Format>
float decode(int code) {
  return fp8_to_float(typename Format::Type{static_cast<std::uint8_t>(code)});
}

// Inputs: every value, every midpoint of neighbours, the fp32 numbers next to each, and fp32
// patterns of every exponent.
template <class Format>
std::vector<float> interesting() {
  std::vector<float> x{0.0f, 1e30f, 3e38f, std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (int code = 0; code <= Format::kLargest; ++code) {
    const double a = Format::value(code);
    const double b =
        code < Format::kLargest ? Format::value(code + 1) : 2 * a - Format::value(code - 1);
    for (const double v : {a, (a + b) / 2, a + (b - a) / 4})
      for (const float towards : {-1e30f, static_cast<float>(v), 1e30f})
        x.push_back(std::nextafter(static_cast<float>(v), towards));
  }
  for (std::uint64_t i = 0; i < 1 << 15; ++i)
    for (const auto word : philox(1, 2, i))
      x.push_back(std::bit_cast<float>(word));
  const auto positive = x.size();
  for (std::size_t i = 0; i < positive; ++i)
    x.push_back(-x[i]);
  return x;
}

// The nearest finite value; a tie gives the one with an even code. The input is clamped first,
// because far away all values are equally near in float64.
template <class Format>
int nearest(float x) {
  if (std::isnan(x)) return 0x7f;
  const double largest = Format::value(Format::kLargest);
  const double magnitude = std::min(std::abs(static_cast<double>(x)), largest);
  int best = 0;
  double distance = magnitude;
  for (int code = 1; code <= Format::kLargest; ++code) {
    const double d = std::abs(Format::value(code) - magnitude);
    if (d < distance || (d == distance && code % 2 == 0)) {
      best = code;
      distance = d;
    }
  }
  return best | (std::signbit(x) ? 0x80 : 0);
}

TYPED_TEST(Fp8Format, every_code_decodes_to_its_definition) {
  for (int code = 0; code < 256; ++code) {
    const float x = decode<TypeParam>(code);
    if (TypeParam::is_nan(code)) {
      EXPECT_TRUE(std::isnan(x)) << code;
    } else if (TypeParam::is_infinite(code)) {
      EXPECT_EQ(x, (code < 128 ? 1 : -1) * std::numeric_limits<float>::infinity()) << code;
    } else {
      EXPECT_EQ(static_cast<double>(x), TypeParam::value(code)) << code;
      EXPECT_EQ(std::signbit(x), code >= 128) << code;
    }
  }
}

TYPED_TEST(Fp8Format, encoding_takes_the_nearest_value_and_saturates) {
  for (const float x : interesting<TypeParam>())
    ASSERT_EQ(encode<TypeParam>(x), nearest<TypeParam>(x)) << std::hexfloat << x;
}

TYPED_TEST(Fp8Format, conversions_are_constant_expressions) {
  using F = typename TypeParam::Type;
  static_assert(fp8_to_float(to_fp8<F>(-1.5f)) == -1.5f);
  static_assert(fp8_to_float(to_fp8<F>(1e9f)) == F::kLargestValue);
}

// Hash of a format's codes for interesting(), and of the fp32 bits of its 256 codes.
template <class Format, class Encode, class Decode>
std::string hash_of_conversions(Encode&& encode_one, Decode&& decode_one) {
  std::vector<std::uint8_t> codes;
  for (const float x : interesting<Format>())
    codes.push_back(static_cast<std::uint8_t>(encode_one(x)));
  std::vector<float> values;
  for (int code = 0; code < 256; ++code)
    values.push_back(decode_one(code));
  Hasher hash;
  hash.add(std::as_bytes(std::span(codes)));
  hash.add(std::as_bytes(std::span(values)));
  return hash.hex();
}

// Values from cuda_fp8.h of CUDA 13.0, printed by has_the_bits_of_cuda_fp8.
template <class Format>
constexpr const char* kCudaHash = "";
template <>
constexpr const char* kCudaHash<E4M3> = "544d77b1fd254a6cd4bea0f326cbee87";
template <>
constexpr const char* kCudaHash<E5M2> = "84757a83e6a9a9563e6804cc94e7b16f";

TYPED_TEST(Fp8Format, has_the_bits_that_cuda_fp8_had) {
  EXPECT_EQ(hash_of_conversions<TypeParam>(encode<TypeParam>, decode<TypeParam>),
            kCudaHash<TypeParam>);
}

TYPED_TEST(Fp8Format, has_the_bits_of_cuda_fp8) {
#if LOCKSTEP_HAVE_CUDA_FP8
  const auto format = std::is_same_v<TypeParam, E4M3> ? __NV_E4M3 : __NV_E5M2;
  const auto cuda_encode = [=](float x) {
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, format);
  };
  const auto cuda_decode = [=](int code) {
    return __half2float(
        __half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), format)));
  };
  for (const float x : interesting<TypeParam>())
    ASSERT_EQ(encode<TypeParam>(x), cuda_encode(x)) << std::hexfloat << x;
  for (int code = 0; code < 256; ++code)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(decode<TypeParam>(code)),
              std::bit_cast<std::uint32_t>(cuda_decode(code)))
        << code;
  EXPECT_EQ(hash_of_conversions<TypeParam>(cuda_encode, cuda_decode), kCudaHash<TypeParam>);
#else
  GTEST_SKIP() << "cuda_fp8.h was not found when this was built (it comes with the CUDA toolkit)";
#endif
}

}  // namespace lockstep::fp8_test
