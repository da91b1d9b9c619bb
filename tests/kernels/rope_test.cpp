#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include "tests/kernels/draw.h"
#include "tests/kernels/reference_attention.h"
#include "tests/testing.h"

namespace lockstep::testing::rope_test {

struct Heads {
  std::int64_t N;
  int H, G;
  std::int64_t K;
  Shape qkv() const { return {N, H + 2 * G, K}; }
  reference::RopeSetting setting() const {
    return {static_cast<std::size_t>(H + 2 * G), static_cast<std::size_t>(H + G),
            static_cast<std::size_t>(K)};
  }
};
const Heads kHeads[] = {{1, 1, 1, 2}, {3, 4, 2, 16}, {70, 3, 3, 34}, {40, 6, 1, 128}};
constexpr std::int64_t kPositions = 90;
// A context so short that all three regions of frequencies occur at any head size.
constexpr RopeScaling kScaling{
    .factor = 8, .low_factor = 1, .high_factor = 4, .original_context = 64};

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
    expect_close(out, reference::rope(doubles(qkv), doubles(table), positions, s.setting()),
                 tolerance(GetParam()), "qkv");
  }
}

TEST_P(Rope, backward_equals_the_reference) {
  for (const auto& s : kHeads)
    for (const auto& scaling : {std::optional<RopeScaling>{}, {kScaling}}) {
      Bench b;
      const auto dout = b.random(s.qkv(), GetParam()), dqkv = b.copy(dout);
      const auto table = b.poisoned({kPositions, s.K}, DType::fp32);
      const auto positions = some_positions(s.N);
      rope_table(b.stream, table, 10000.0f, scaling);
      rope_backward(b.stream, dqkv, table, b.integers(positions), s.H, s.G);
      expect_close(dqkv,
                   reference::rope_gradient(doubles(dout), doubles(table), positions, s.setting()),
                   tolerance(GetParam()), "dqkv");
    }
}

// Angles are rounded to fp32, some 2^-24 of up to P, and so are frequencies.
void check_random(Draw& draw, DType dtype) {
  const auto G = static_cast<int>(draw.between(1, 4));
  const Heads s{draw.size(200), G * static_cast<int>(draw.between(1, 5)), G, 2 * draw.size(128)};
  const auto P = draw.size(500);
  SCOPED_TRACE(str("qkv ", s.qkv(), " H ", s.H, " P ", P));
  auto b = draw.bench();
  const auto scaling = draw.coin() ? std::optional(kScaling) : std::nullopt;
  const auto theta = static_cast<float>(draw.between(100, 1000000));
  const auto table = b.poisoned({P, s.K}, DType::fp32);
  rope_table(b.stream, table, theta, scaling);
  const auto angles = reference::rope_table(P, s.K, static_cast<double>(theta), scaling);
  expect_close(table, angles, 3e-7 * static_cast<double>(P), "table");

  std::vector<std::int32_t> positions;
  for (std::int64_t n = 0; n < s.N; ++n)
    positions.push_back(static_cast<std::int32_t>(draw.between(0, P - 1)));
  const auto qkv = b.random(s.qkv(), dtype), dqkv = b.random(s.qkv(), dtype);
  const auto in = doubles(qkv), dout = doubles(dqkv);
  rope_forward(b.stream, qkv, table, b.integers(positions), s.H, s.G);
  expect_close(qkv, reference::rope(in, doubles(table), positions, s.setting()), tolerance(dtype),
               "qkv");
  const auto absmax = b.poisoned({1}, DType::fp32);
  rope_backward(b.stream, dqkv, table, b.integers(positions), s.H, s.G, absmax);
  expect_absmax(absmax, dqkv);
  expect_close(dqkv, reference::rope_gradient(dout, doubles(table), positions, s.setting()),
               tolerance(dtype), "dqkv");
}
TEST_P(Rope, random_shapes_equal_the_reference) {
  few_draws([](Draw& draw) { check_random(draw, GetParam()); });
}
TEST_P(Rope, full_random_shapes_equal_the_reference) {
  many_draws([](Draw& draw) { check_random(draw, GetParam()); });
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

// A fused product and sum would move the last bit of some blended frequencies, and angles at far
// positions by 5e-4.
TEST(RopeTable, each_step_of_a_frequency_is_rounded) {
  const std::int64_t P = 8192, K = 128;
  const RopeScaling scaling;  // of Llama 3.1
  Bench b;
  const auto table = b.poisoned({P, K}, DType::fp32);
  rope_table(b.stream, table, 500000.0f, scaling);
  int blended = 0;
  for (std::int64_t i = 0; i < K / 2; ++i) {
    const volatile float f = inverse_frequency(i, K, 500000.0f, {});
    const auto wavelength = static_cast<float>(2 * M_PI) / f;
    const auto context = static_cast<float>(scaling.original_context);
    if (wavelength > context || wavelength < context / 4) continue;
    ++blended;
    const volatile float smooth = (context / wavelength - 1.0f) / 3.0f, rest = 1.0f - smooth,
                         long_one = rest * f, stretched = long_one / 8.0f, kept = smooth * f,
                         blend = stretched + kept, angle = 8191.0f * blend;
    EXPECT_EQ(table.as<float>()[(P - 1) * K + i],
              static_cast<float>(std::cos(static_cast<double>(angle))))
        << i;
  }
  EXPECT_GT(blended, 3);
}

TEST(RopeContract, the_reference_gradient_is_the_derivative_of_the_reference) {
  Bench b;
  const Heads s{3, 2, 1, 6};
  const std::vector<std::int32_t> positions{4, 0, 2};
  auto qkv = doubles(b.random(s.qkv(), DType::fp32));
  const auto dout = doubles(b.random(s.qkv(), DType::fp32));
  for (const auto& scaling : {std::optional<RopeScaling>{}, {kScaling}}) {
    const auto table = reference::rope_table(5, s.K, 100, scaling);
    const auto loss = [&] {
      return reference::dot(dout, reference::rope(qkv, table, positions, s.setting()));
    };
    expect_close(reference::rope_gradient(dout, table, positions, s.setting()),
                 finite_differences(qkv, loss), 1e-7, "dqkv");
  }
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

}  // namespace lockstep::testing::rope_test
