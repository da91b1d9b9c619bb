#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "tests/kernels/heads.h"

namespace lockstep::testing::rope_test {

constexpr std::int64_t kPositions = 90;

TEST(RopeTable, is_the_cosine_and_sine_of_position_times_frequency) {
  Bench b;
  for (const std::int64_t K : {2, 10, 64, 128}) {
    const auto table = b.poisoned({kPositions, K}, DType::fp32);
    rope_table(b.stream, table, 500000.0f, {});
    // Angles are rounded to fp32: 90 x 2^-24 and an ulp of the frequency.
    expect_close(table, reference::rope_table(kPositions, K, 500000.0), 2e-5, "table");
  }
}

// tests/oracle compares the values of transformers' llama3 scaling; this test checks its three
// regions.
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
    const double angle = std::asin(get(scaled, K + K / 2 + i));  // below pi/2 except i = 0
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

// A fused multiply-add would change the last bit of some blended frequencies, and angles at far
// positions by 5e-4.
TEST(RopeTable, each_operation_of_a_frequency_is_rounded) {
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

TEST(Rope, the_reference_gradient_is_the_derivative_of_the_reference) {
  Bench b;
  Draw draw(1);
  Operator o(b, draw, {3, 2, 1, 6}, DType::fp32, 0);
  const Heads s{o.size};
  auto qkv = doubles(b.random(s.qkv(), DType::fp32));
  const auto dout = doubles(b.random(s.qkv(), DType::fp32));
  for (const auto& scaling : {std::optional<RopeScaling>{}, {kShortScaling}}) {
    const Turns turns(o, s, scaling);
    const auto loss = [&] { return reference::dot(dout, turns.forward(qkv, s)); };
    expect_close(turns.backward(dout, s), finite_differences(qkv, loss), 1e-7, "dqkv");
  }
}

TEST(Rope, mismatched_arguments_are_rejected_by_name) {
  Bench b;
  const auto qkv = b.random({3, 4, 8}, DType::fp32), table = b.random({5, 8}, DType::fp32);
  const auto narrow = b.random({5, 6}, DType::fp32);
  const auto fit = b.integers({0, 4, 2}), far = b.integers({0, 5, 2});
  rope_forward(b.stream, qkv, table, fit, 2, 1);
  expect_refused("table is [5, 6], expected [5, 8]",
                 [&] { rope_forward(b.stream, qkv, narrow, fit, 2, 1); });
  expect_refused("qkv is [3, 4, 8], expected [N, 5, K]",
                 [&] { rope_forward(b.stream, qkv, table, fit, 3, 1); });
  expect_refused("positions[1] is 5, but the rope table has rows 0 to 4",
                 [&] { rope_forward(b.stream, qkv, table, far, 2, 1); });
}

}  // namespace lockstep::testing::rope_test
