#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include "core/fp8.h"
#include "tests/testing.h"

namespace lockstep::testing {
namespace {

float largest_of(DType fp8) {
  return fp8 == DType::fp8_e4m3 ? 448.0f : 57344.0f;
}
std::uint8_t encode(DType fp8, float x) {
  return fp8 == DType::fp8_e4m3 ? to_fp8<Fp8E4M3>(x).bits : to_fp8<Fp8E5M2>(x).bits;
}
float decode(ConstTensor q, std::int64_t i) {
  const auto bits = std::to_integer<std::uint8_t>(q.data[i]);
  return q.dtype == DType::fp8_e4m3 ? fp8_to_float(Fp8E4M3{bits}) : fp8_to_float(Fp8E5M2{bits});
}

struct Types {
  DType x, q;
};
class Quantize : public ::testing::TestWithParam<Types> {};

// Patterns of every exponent: NaNs, infinities, denormals (which count as 0), what saturates.
Tensor patterns(Bench& b, std::int64_t size, DType dtype) {
  const auto x = b.arena.allocate("patterns", dtype, {size});
  for (std::int64_t i = 0; i < size; ++i) {
    const auto word = philox(7, 7, static_cast<std::uint64_t>(i))[0];
    if (dtype == DType::fp32)
      x.as<float>()[i] = std::bit_cast<float>(word);
    else
      x.as<BFloat16>()[i] = {static_cast<std::uint16_t>(word)};
  }
  return x;
}

TEST_P(Quantize, has_the_bits_of_the_scalar_conversion) {
  const auto [type, fp8] = GetParam();
  for (const std::int64_t size : {1, 17, 70001}) {
    Bench b;
    const auto x = patterns(b, size, type), q = b.poisoned({size}, fp8);
    const auto scale = b.poisoned({1}, DType::fp32), absmax = b.random({1}, DType::fp32);
    for (const float m : {largest_of(fp8), 0.0f, 3.7f}) {
      Bench::set(absmax, 0, static_cast<double>(m));
      quantize(b.stream, q, scale, x, absmax);
      const float s = m == 0 ? 1 : m / largest_of(fp8);
      ASSERT_EQ(scale.as<float>()[0], s);
      for (std::int64_t i = 0; i < size; ++i) {
        const auto value = static_cast<float>(get(x, i));
        ASSERT_EQ(std::to_integer<int>(q.data[i]), encode(fp8, value / s)) << value << " / " << s;
      }
    }
  }
}

TEST_P(Quantize, dequantize_gives_back_value_times_scale) {
  const auto [type, fp8] = GetParam();
  Bench b;
  const auto q = b.arena.allocate("q", fp8, {256}), y = b.poisoned({256}, type);
  for (std::int64_t i = 0; i < 256; ++i)
    q.data[i] = static_cast<std::byte>(i);
  const auto scale = b.random({1}, DType::fp32);
  dequantize(b.stream, y, q, scale);
  for (std::int64_t i = 0; i < 256; ++i) {
    float expected = decode(q, i) * scale.as<float>()[0];
    if (type == DType::bf16) expected = to_float(to_bf16(expected));
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(get(y, i))) << i;
    else
      EXPECT_EQ(get(y, i), expected) << i;
  }
}

TEST_P(Quantize, a_round_trip_keeps_the_relative_precision_of_the_format) {
  const auto [type, fp8] = GetParam();
  Bench b;
  const auto x = b.random({5000}, type), q = b.poisoned({5000}, fp8), y = b.poisoned({5000}, type);
  const auto scale = b.poisoned({1}, DType::fp32), absmax = b.random({1}, DType::fp32);
  Bench::set(absmax, 0, 1);
  quantize(b.stream, q, scale, x, absmax);
  dequantize(b.stream, y, q, scale);
  // Half a unit of the last place, and the rounding of y to bf16.
  const double relative = (fp8 == DType::fp8_e4m3 ? 1.0 / 16 : 1.0 / 8) * 1.07;
  for (std::int64_t i = 0; i < 5000; ++i) {
    if (std::abs(get(x, i)) < 0.01) continue;  // may be below the normal numbers
    EXPECT_LE(std::abs(get(y, i) - get(x, i)), relative * std::abs(get(x, i)));
  }
}

TEST_P(Quantize, blocks_have_their_own_scales) {
  const auto [type, fp8] = GetParam();
  for (const Shape shape : {Shape{1, 1}, {128, 128}, {129, 127}, {300, 261}}) {
    Bench b;
    const auto R = shape[0], C = shape[1];
    const auto x = b.random(shape, type), q = b.poisoned(shape, fp8), y = b.poisoned(shape, type);
    const Shape grid{(R + 127) / 128, (C + 127) / 128};
    const auto scales = b.poisoned(grid, DType::fp32);
    for (std::int64_t i = 0; i < R * C; ++i) {  // magnitudes 1, 10, 100, ... from block to block
      const auto block = i / C / 128 + i % C / 128;
      Bench::set(x, i, get(x, i) * std::pow(10, static_cast<double>(block)));
    }
    quantize_blocks(b.stream, q, scales, x);
    dequantize(b.stream, y, q, scales);
    std::vector<float> absmax(static_cast<std::size_t>(grid.elements()));
    const auto block = [&](std::int64_t i) { return i / C / 128 * grid[1] + i % C / 128; };
    for (std::int64_t i = 0; i < R * C; ++i) {
      auto& m = absmax[static_cast<std::size_t>(block(i))];
      m = std::max(m, static_cast<float>(std::abs(get(x, i))));
    }
    for (std::int64_t i = 0; i < R * C; ++i) {
      const float s = absmax[static_cast<std::size_t>(block(i))] / largest_of(fp8);
      ASSERT_EQ(scales.as<float>()[block(i)], s);
      const auto value = static_cast<float>(get(x, i));
      ASSERT_EQ(std::to_integer<int>(q.data[i]), encode(fp8, value / s)) << i;
      const float back = decode(q, i) * s;
      ASSERT_EQ(get(y, i), type == DType::bf16 ? to_float(to_bf16(back)) : back) << i;
    }
  }
}

// Under flush-to-zero, absmax / 448 of a tiny absmax would be a scale of 0.
TEST_P(Quantize, a_tiny_absmax_gives_a_usable_scale) {
  const auto [type, fp8] = GetParam();
  Bench b;
  const auto x = b.random({16}, type), q = b.poisoned({16}, fp8);
  const auto scale = b.poisoned({1}, DType::fp32), absmax = b.random({1}, DType::fp32);
  for (std::int64_t i = 0; i < 16; ++i)
    Bench::set(x, i, i % 2 == 0 ? 0 : 2e-38);
  Bench::set(absmax, 0, 2e-38);
  quantize(b.stream, q, scale, x, absmax);
  EXPECT_EQ(scale.as<float>()[0], std::numeric_limits<float>::min());
  for (std::int64_t i = 0; i < 16; ++i)
    EXPECT_NEAR(decode(q, i), i % 2 == 0 ? 0 : 2e-38 / 1.17549435e-38, 0.13);
}

TEST(QuantizeContract, wrong_types_and_shapes_are_refused_by_name) {
  Bench b;
  const auto x = b.random({130, 5}, DType::fp32), scale = b.random({1}, DType::fp32);
  const auto q = b.poisoned({130, 5}, DType::fp8_e4m3);
  EXPECT_THROW(quantize(b.stream, x, scale, x, scale), Error);
  EXPECT_THROW(quantize(b.stream, q, scale, x, scale), Error);  // GPUs read absmax while one writes
  EXPECT_THROW(quantize(b.stream, q, scale, b.random({5, 130}, DType::fp32), scale), Error);
  EXPECT_THROW(dequantize(b.stream, q, q, scale), Error);
  try {
    quantize_blocks(b.stream, q, b.random({1, 1}, DType::fp32), x);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("scales is [1, 1], expected [2, 1]"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(types, Quantize,
                         ::testing::Values(Types{DType::fp32, DType::fp8_e4m3},
                                           Types{DType::bf16, DType::fp8_e4m3},
                                           Types{DType::fp32, DType::fp8_e5m2},
                                           Types{DType::bf16, DType::fp8_e5m2}),
                         [](const auto& p) { return str(name(p.param.x), "_", name(p.param.q)); });

}  // namespace
}  // namespace lockstep::testing
