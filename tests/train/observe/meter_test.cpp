#include "train/observe/meter.h"

#include <cmath>
#include <gtest/gtest.h>

namespace lockstep::meter_test {

const Meter::Config kConfig{.steps = 100,
                            .step_tokens = 1000,
                            .flops_per_token = 6e6,
                            .flops_per_token_square = 8e6,
                            .peak_flops = 1e11,
                            .device = {},
                            .limit_bytes = 77};

TEST(Meter, rates_are_over_the_time_of_the_step) {
  Meter m(kConfig);
  const auto r = m.step(1, 0.25);
  EXPECT_EQ(r.step, 1);
  EXPECT_EQ(r.steps, 100);
  EXPECT_DOUBLE_EQ(r.tokens_per_second, 4000);
  EXPECT_DOUBLE_EQ(r.model_flops_utilization, 0.24);
  EXPECT_DOUBLE_EQ(r.model_flops_utilization_square, 0.32);
  EXPECT_EQ(r.limit_bytes, 77);
  EXPECT_GT(r.peak_bytes, 1 << 20);
}

// Half of the causal count is computed at twice the rate, so the time at the peak is three
// quarters.
TEST(Meter, fp8_matmuls_count_against_their_own_peak) {
  auto config = kConfig;
  config.fp8_flops_per_token = 3e6;
  config.fp8_peak_flops = 2e11;
  Meter m(config);
  const auto r = m.step(1, 0.25);
  EXPECT_DOUBLE_EQ(r.model_flops_utilization, 0.75 * 0.24);
  EXPECT_DOUBLE_EQ(r.model_flops_utilization_square, 4000 * (5e6 / 1e11 + 3e6 / 2e11));
}

// 4000 tokens/s are 24 GFLOP/s with the causal count.
TEST(Meter, above_105_percent_of_the_peak_mfu_is_unknown_until_a_larger_peak_is_measured) {
  auto config = kConfig;
  config.peak_flops = 24e9 / 1.06;
  Meter m(config);
  const auto busy = m.step(1, 0.25);
  EXPECT_TRUE(std::isnan(busy.model_flops_utilization));
  EXPECT_TRUE(std::isnan(busy.model_flops_utilization_square));
  EXPECT_TRUE(busy.peak_is_too_low);
  m.measured_peak(20e9);  // lower: the first one counts
  EXPECT_TRUE(m.step(2, 0.25).peak_is_too_low);
  m.measured_peak(24e9 / 1.04);
  const auto idle = m.step(3, 0.25);
  EXPECT_DOUBLE_EQ(idle.model_flops_utilization, 1.04);
  EXPECT_DOUBLE_EQ(idle.model_flops_utilization_square, 1.04 * 8 / 6);  // counts masked tokens
  EXPECT_FALSE(idle.peak_is_too_low);
  m.measured_peak(48e9);
  EXPECT_DOUBLE_EQ(m.step(4, 0.25).model_flops_utilization, 0.5);
}

TEST(Meter, the_eta_counts_steps_evaluations_and_saves) {
  Meter m(kConfig);
  EXPECT_DOUBLE_EQ(m.step(1, 9).eta_seconds, 99 * 9.0);
  EXPECT_DOUBLE_EQ(m.step(2, 2).eta_seconds, 98 * 2.0);  // the first step warms up
  EXPECT_DOUBLE_EQ(m.step(3, 4).eta_seconds, 97 * 3.0);
  m.spent_evaluating(10, 5);
  m.spent_saving(20, 10);
  EXPECT_DOUBLE_EQ(m.step(4, 3).eta_seconds, 96 * (3.0 + 2 + 2));
  m.spent_evaluating(10, 0);  // never again
  EXPECT_DOUBLE_EQ(m.step(5, 3).eta_seconds, 95 * (3.0 + 2));
}

TEST(Meter, the_eta_follows_a_change_of_speed_within_some_twenty_steps) {
  auto config = kConfig;
  config.steps = 100000;
  Meter m(config);
  for (int step = 1; step <= 200; ++step)
    m.step(step, 1);
  double eta = 0;
  for (int step = 201; step <= 260; ++step)
    eta = m.step(step, 2).eta_seconds;
  EXPECT_NEAR(eta / (100000 - 260), 2, 0.1);
  EXPECT_DOUBLE_EQ(Meter(m).step(100000, 2).eta_seconds, 0);
}

}  // namespace lockstep::meter_test
