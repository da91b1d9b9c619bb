// Tests the vector functions over their whole range, on the CPU level of this process. Streams
// flush denormals to 0, so results below the smallest normal fp32 are not compared.
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numbers>

#include "tests/kernels/reference.h"
#include "tests/kernels/simd_probe.h"
#include "tests/testing.h"

namespace lockstep::testing::simd_test {

void apply(SimdFunction f, std::vector<float>& y, const std::vector<float>& x) {
  y.resize(x.size());
  LOCKSTEP_DISPATCH_CPU(simd_apply(f, y.data(), x.data(), static_cast<std::int64_t>(x.size())));
}
void round(std::vector<BFloat16>& y, const std::vector<float>& x) {
  y.resize(x.size());
  LOCKSTEP_DISPATCH_CPU(simd_round(y.data(), x.data(), static_cast<std::int64_t>(x.size())));
}
void round_stochastically(std::vector<BFloat16>& y, const std::vector<float>& x,
                          const std::vector<std::uint32_t>& bits) {
  y.resize(x.size());
  LOCKSTEP_DISPATCH_CPU(simd_round_stochastically(y.data(), x.data(), bits.data(),
                                                  static_cast<std::int64_t>(x.size())));
}
void copy(const SimdCopy& args) {
  LOCKSTEP_DISPATCH_CPU(simd_copy(args));
}
SimdSums sums(const std::vector<float>& x) {
  LOCKSTEP_DISPATCH_CPU(simd_sums(x.data(), static_cast<std::int64_t>(x.size())));
  return {};
}
void draws(Philox4* eight, std::uint64_t key, std::uint64_t high, std::uint64_t first) {
  LOCKSTEP_DISPATCH_CPU(simd_draws(eight, key, high, first));
}

// About `count` of all fp32 numbers in [low, high], evenly by their bits (so, evenly over
// exponents), with both ends; a multiple of 16.
std::vector<float> numbers_between(float low, float high, int count = 400000) {
  const auto key = [](float x) {
    const auto u = std::bit_cast<std::int32_t>(x);
    return static_cast<std::int64_t>(u < 0 ? std::numeric_limits<std::int32_t>::min() - u : u);
  };
  const auto first = key(low), last = key(high);
  std::vector<float> x;
  const auto step = std::max<std::int64_t>(1, (last - first) / count);
  for (auto k = first; k <= last; k += step) {
    const auto u =
        static_cast<std::int32_t>(k < 0 ? std::numeric_limits<std::int32_t>::min() - k : k);
    x.push_back(std::bit_cast<float>(u));
  }
  x.push_back(high);
  while (x.size() % 16 != 0)
    x.push_back(high);
  return x;
}

// The largest |f(x) - exact(x)| over unit(exact(x)), where exact(x) is a normal number or 0.
template <class Exact, class Unit>
double worst_error(SimdFunction f, const std::vector<float>& x, Exact&& exact, Unit&& unit) {
  std::vector<float> y;
  apply(f, y, x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(static_cast<double>(x[i]));
    if (std::abs(expected) < 0x1p-125) continue;
    const double error = std::abs(static_cast<double>(y[i]) - expected) / unit(expected);
    if (!(error <= worst)) worst = error;
    if (std::isnan(error)) return error;
  }
  return worst;
}
double magnitude(double x) {
  return std::abs(x);
}
double one(double) {
  return 1;
}

TEST(Simd, exp_is_accurate_over_its_range) {
  EXPECT_LT(worst_error(
                SimdFunction::exp, numbers_between(-87.3f, 88.3f),
                [](double x) { return std::exp(x); }, magnitude),
            2e-7);
}

TEST(Simd, exp_outside_its_range_is_zero_large_or_nan) {
  Bench b;  // its stream flushes denormals
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x(16), y;
  x = {-87.8f, -1e30f, -infinity, 88.4f,   1e30f,  infinity, nan,   -nan,
       0.0f,   -0.0f,  1e-38f,    -1e-38f, -88.0f, -100.0f,  88.3f, 200.0f};
  apply(SimdFunction::exp, y, x);
  for (const int i : {0, 1, 2, 12, 13})
    EXPECT_EQ(y[static_cast<std::size_t>(i)], 0) << x[static_cast<std::size_t>(i)];
  for (const int i : {3, 4, 5, 15}) {
    EXPECT_GT(y[static_cast<std::size_t>(i)], 2e38f);
    EXPECT_TRUE(std::isfinite(y[static_cast<std::size_t>(i)]));
  }
  for (const int i : {6, 7})
    EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(i)]));
  for (const int i : {8, 9, 10, 11})
    EXPECT_EQ(y[static_cast<std::size_t>(i)], 1);
}

TEST(Simd, exp2_is_accurate_over_its_range) {
  EXPECT_LT(worst_error(
                SimdFunction::exp2, numbers_between(-126, 126),
                [](double x) { return std::exp2(x); }, magnitude),
            2e-7);
}

TEST(Simd, exp2_is_exact_at_integers_and_zero_below_its_range) {
  std::vector<float> x, y;
  for (int n = -126; n <= 126; ++n)
    x.push_back(static_cast<float>(n));
  for (const float low :
       {-126.01f, -127.5f, -1e3f, -1e30f, -std::numeric_limits<float>::infinity()})
    x.push_back(low);
  x.resize(272);
  apply(SimdFunction::exp2, y, x);
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(y[i], x[i] < -126 ? 0.0f : std::exp2(x[i])) << x[i];
}

TEST(Simd, log2_is_accurate_over_the_normal_numbers) {
  const auto unit = [](double y) { return std::max(1.0, std::abs(y)); };
  for (const auto& x : {numbers_between(0x1p-126f, 3e38f), numbers_between(0.9f, 1.1f)})
    EXPECT_LT(worst_error(
                  SimdFunction::log2, x, [](double v) { return std::log2(v); }, unit),
              2e-7);
}

// 0xffffffff fills memory after its scope ends; 0x7fffffff is a NaN that was converted from fp8.
TEST(Simd, nan_of_any_payload_stays_nan_in_the_softmax_of_attention) {
  std::vector<float> x(16), y;
  for (const std::uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7fffffffu, 0xffffffffu, 0x7fc00001u,
                                   0x7fc000ffu, 0x7f800001u, 0xff800001u}) {
    x[5] = std::bit_cast<float>(bits);
    for (const auto f : {SimdFunction::exp2, SimdFunction::log2}) {
      apply(f, y, x);
      EXPECT_TRUE(std::isnan(y[5])) << std::hex << bits << " became " << y[5];
    }
  }
}

TEST(Simd, sigmoid_is_accurate_over_its_range) {
  EXPECT_LT(worst_error(
                SimdFunction::sigmoid, numbers_between(-87.0f, 3e38f),
                [](double x) { return 1 / (1 + std::exp(-x)); }, magnitude),
            4e-7);
}

// The error of gelu is relative to its value above 1e-7: at x = -5, e^(2u) multiplies the rounding
// of 2u by 20. The error of the slope is absolute, because the slope passes through 0.
TEST(Simd, gelu_and_its_slope_are_accurate) {
  const auto range = numbers_between(-8.0f, 3e5f);
  EXPECT_LT(worst_error(SimdFunction::gelu, range, reference::gelu_value,
                        [](double y) { return std::max(std::abs(y), 1e-7); }),
            3e-6);
  EXPECT_LT(worst_error(SimdFunction::gelu_slope, range, reference::gelu_slope_value, one), 1e-6);
}

TEST(Simd, log_is_accurate_over_the_normal_numbers) {
  EXPECT_LT(worst_error(
                SimdFunction::log, numbers_between(0x1p-126f, 3e38f),
                [](double x) { return std::log(x); }, magnitude),
            3e-7);
  EXPECT_LT(worst_error(
                SimdFunction::log, numbers_between(0.9f, 1.1f),
                [](double x) { return std::log(x); }, magnitude),
            3e-7);
}

TEST(Simd, sine_and_cosine_of_turns_are_accurate) {
  const auto turns = numbers_between(0, 1);
  const double turn = 2 * std::numbers::pi;
  EXPECT_LT(
      worst_error(
          SimdFunction::sine_of_turns, turns, [=](double x) { return std::sin(turn * x); }, one),
      2e-7);
  EXPECT_LT(
      worst_error(
          SimdFunction::cosine_of_turns, turns, [=](double x) { return std::cos(turn * x); }, one),
      2e-7);
}

TEST(Simd, square_root_is_rounded_correctly) {
  const auto x = numbers_between(0, 3e38f);
  std::vector<float> y;
  apply(SimdFunction::square_root, y, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] < 0x1p-126f) continue;
    ASSERT_EQ(y[i], std::sqrt(x[i])) << x[i];
  }
}

// Every bf16 pattern, and fp32 patterns of every exponent: infinities, NaNs, denormals.
TEST(Simd, rounding_to_bf16_has_the_bits_of_to_bf16) {
  std::vector<float> x;
  for (std::uint32_t u = 0; u < 1u << 16; ++u)
    for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(std::bit_cast<float>(u << 16 | low));
  for (std::uint64_t i = 0; i < 1u << 16; ++i)
    for (const auto word : philox(1, 2, i))
      x.push_back(std::bit_cast<float>(word));
  std::vector<BFloat16> y;
  round(y, x);
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(y[i].bits, to_bf16(x[i]).bits) << std::hex << std::bit_cast<std::uint32_t>(x[i]);
}

// Over all 2^16 values of the random bits the mean is the number itself, exactly.
TEST(Simd, stochastic_rounding_is_unbiased) {
  std::vector<std::uint32_t> bits(1u << 16);
  for (std::uint32_t i = 0; i < bits.size(); ++i)
    bits[i] = i;
  std::vector<BFloat16> y;
  for (const float x : {1.0f, -1.00390613f, 3.14159265f, -2.7e-20f, 6.02e23f, 0.0f, 1.99999988f}) {
    round_stochastically(y, std::vector<float>(bits.size(), x), bits);
    double sum = 0;
    for (const auto r : y) {
      sum += static_cast<double>(to_float(r));
      ASSERT_LE(std::abs(to_float(r) - x), std::abs(x) * 0x1p-7f);
    }
    EXPECT_EQ(sum / static_cast<double>(bits.size()), static_cast<double>(x));
  }
}

TEST(Simd, stochastic_rounding_keeps_infinities_and_nans) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x(16, infinity);
  x[1] = -infinity;
  x[2] = std::bit_cast<float>(0x7f800001u);
  x[3] = std::bit_cast<float>(0xffffffffu);
  std::vector<BFloat16> y;
  round_stochastically(y, x, std::vector<std::uint32_t>(16, 0xffffu));
  EXPECT_EQ(to_float(y[0]), infinity);
  EXPECT_EQ(to_float(y[1]), -infinity);
  EXPECT_TRUE(std::isnan(to_float(y[2])));
  EXPECT_TRUE(std::isnan(to_float(y[3])));
}

TEST(Simd, loads_and_stores_touch_only_their_elements) {
  for (const bool from_bf16 : {false, true})
    for (const bool to_bf16 : {false, true})
      for (std::int64_t size = 1; size <= 16; ++size) {
        Bench b;
        const auto type = [](bool bf16) { return bf16 ? DType::bf16 : DType::fp32; };
        const auto from = b.random({size}, type(from_bf16));
        const auto to = b.random({size + 16}, type(to_bf16)), before = b.copy(to);
        copy({from.data, to.data, from_bf16, to_bf16, size});
        for (std::int64_t i = 0; i < size + 16; ++i) {
          double expected = i < size ? get(from, i) : get(before, i);
          if (to_bf16) expected = to_float(lockstep::to_bf16(static_cast<float>(expected)));
          ASSERT_EQ(get(to, i), expected) << "element " << i << " of " << size;
        }
      }
}

TEST(Simd, sums_and_maxima_of_every_length_match_a_loop) {
  for (std::int64_t size = 16; size <= 200; ++size) {
    Bench b;
    const auto x = doubles(b.random({size}, DType::fp32));
    const auto s = sums(std::vector<float>(x.begin(), x.end()));
    double all = 0, first = 0, largest = -1;
    for (std::size_t i = 0; i < x.size(); ++i) {
      all += x[i];
      if (i < 16) first += x[i];
      if (i < 16) largest = std::max(largest, x[i]);
    }
    EXPECT_NEAR(s.total, first, 1e-5);
    EXPECT_EQ(static_cast<double>(s.largest), largest);
    EXPECT_NEAR(s.sum_vectors, all, 1e-5);
  }
}

TEST(Simd, philox_of_lanes_has_the_bits_of_philox) {
  for (const std::uint64_t key : {0ull, ~0ull, 0x299f31d0a4093822ull})
    for (const std::uint64_t high : {0ull, ~0ull, 0x0370734413198a2eull})
      for (const std::uint64_t first : {0ull, 0xfffffffcull, ~0ull - 3}) {
        std::array<Philox4, 8> eight;
        draws(eight.data(), key, high, first);
        for (std::uint64_t i = 0; i < 8; ++i)
          EXPECT_EQ(eight[i], philox(key, high, first + i));
      }
}

}  // namespace lockstep::testing::simd_test
