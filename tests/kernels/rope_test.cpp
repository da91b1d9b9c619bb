#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/kernels/reference_attention.h"
#include "tests/testing.h"

namespace lockstep::testing {
namespace {

struct Heads {
  std::int64_t N;
  int H, G;
  std::int64_t K;
  Shape qkv() const { return {N, H + 2 * G, K}; }
};
const Heads kHeads[] = {{1, 1, 1, 2}, {3, 4, 2, 16}, {70, 3, 3, 34}, {40, 6, 1, 128}};
constexpr std::int64_t kPositions = 90;

std::vector<std::int32_t> some_positions(std::int64_t N) {
  std::vector<std::int32_t> positions;
  for (std::int64_t n = 0; n < N; ++n)
    positions.push_back(static_cast<std::int32_t>((n * 37 + 5) % kPositions));
  return positions;
}

class Rope : public ::testing::TestWithParam<DType> {};

TEST_P(Rope, forward_equals_the_reference) {
  for (const auto& s : kHeads) {
    Bench b;
    const auto qkv = b.random(s.qkv(), GetParam()), out = b.copy(qkv);
    const auto table = b.poisoned({kPositions, s.K}, DType::fp32);
    const auto positions = some_positions(s.N);
    rope_table(b.stream, table, 10000.0f, {});
    rope_forward(b.stream, out, table, b.integers(positions), s.H, s.G);
    const auto expected = reference::rope(
        doubles(qkv), doubles(table), positions, static_cast<std::size_t>(s.H + 2 * s.G),
        static_cast<std::size_t>(s.H + s.G), static_cast<std::size_t>(s.K));
    expect_close(out, expected, tolerance(GetParam()), "qkv");
  }
}

// A rotation's gradient is its transpose: <dy, R x> = <R^T dy, x>, so R^T R = 1.
TEST_P(Rope, backward_is_the_transpose_of_forward) {
  for (const auto& s : kHeads) {
    Bench b;
    const auto qkv = b.random(s.qkv(), GetParam()), back = b.copy(qkv);
    const auto table = b.poisoned({kPositions, s.K}, DType::fp32);
    const auto positions = b.integers(some_positions(s.N));
    rope_table(b.stream, table, 10000.0f, {});
    rope_backward(b.stream, back, table, positions, s.H, s.G);
    rope_forward(b.stream, back, table, positions, s.H, s.G);
    expect_close(back, doubles(qkv), 2 * tolerance(GetParam()), "round trip");
  }
}

TEST(RopeTable, is_the_cosine_and_sine_of_position_times_frequency) {
  Bench b;
  for (const std::int64_t K : {2, 10, 64, 128}) {
    const auto table = b.poisoned({kPositions, K}, DType::fp32);
    rope_table(b.stream, table, 500000.0f, {});
    // Angles are rounded to fp32: 90 x 2^-24 and an ulp of the frequency.
    expect_close(table, reference::rope_table(kPositions, K, 500000.0), 2e-5, "table");
  }
}

// Values of transformers' llama3 scaling are compared in tests/oracle; here, its three regions.
TEST(RopeTable, llama3_scaling_divides_long_wavelengths_and_keeps_short_ones) {
  Bench b;
  const std::int64_t K = 128;
  const auto plain = b.poisoned({2, K}, DType::fp32), scaled = b.poisoned({2, K}, DType::fp32);
  rope_table(b.stream, plain, 500000.0f, {});
  rope_table(b.stream, scaled, 500000.0f, RopeScaling{});
  int kept = 0, divided = 0, blended = 0;
  for (std::int64_t i = 0; i < K / 2; ++i) {
    const double f = std::pow(500000.0, -2.0 * static_cast<double>(i) / static_cast<double>(K));
    const double wavelength = 2 * M_PI / f;
    const double angle = std::asin(get(scaled, K + K / 2 + i));  // below pi/2 but for i = 0
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(get(scaled, K + i), get(plain, K + i)) << i;
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_NEAR(angle, f / 8, 1e-6 * f) << i;
      ++divided;
    } else {
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      EXPECT_NEAR(angle, (1 - smooth) * f / 8 + smooth * f, 1e-6 * f) << i;
      ++blended;
    }
  }
  EXPECT_GT(std::min({kept, divided, blended}), 3);
}

TEST(RopeContract, what_does_not_fit_is_refused_by_name) {
  Bench b;
  const auto qkv = b.random({3, 4, 8}, DType::fp32), table = b.random({5, 8}, DType::fp32);
  const auto call = [&](ConstTensor t, const std::vector<std::int32_t>& positions, int heads) {
    try {
      rope_forward(b.stream, qkv, t, b.integers(positions), heads, 1);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(call(table, {0, 4, 2}, 2), "accepted");
  EXPECT_NE(
      call(b.random({5, 6}, DType::fp32), {0, 1, 2}, 2).find("table is [5, 6], expected [5, 8]"),
      std::string::npos);
  EXPECT_NE(call(table, {0, 1, 2}, 3).find("qkv is [3, 4, 8], expected [N, 5, K]"),
            std::string::npos);
  EXPECT_NE(call(table, {0, 5, 2}, 2).find("positions[1] is 5, but the rope table has rows 0 to 4"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(types, Rope, kFloatTypes, dtype_name);

}  // namespace
}  // namespace lockstep::testing
