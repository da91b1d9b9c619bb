#include "train/schedule.h"

#include <cmath>
#include <gtest/gtest.h>

namespace lockstep::schedule_test {

using Decay = Config::Decay;

constexpr double kPeak = 3e-3;

TEST(Schedule, warmup_is_a_straight_line_from_the_first_step_to_the_peak) {
  const Config::Schedule s{.kind = Decay::cosine, .warmup_steps = 10, .decay_fraction = 1};
  EXPECT_DOUBLE_EQ(learning_rate(s, kPeak, 1, 100), 0.1 * kPeak);
  EXPECT_DOUBLE_EQ(learning_rate(s, kPeak, 5, 100), 0.5 * kPeak);
  EXPECT_DOUBLE_EQ(learning_rate(s, kPeak, 9, 100), 0.9 * kPeak);
  EXPECT_DOUBLE_EQ(learning_rate(s, kPeak, 10, 100), kPeak);
  EXPECT_DOUBLE_EQ(learning_rate(s, kPeak, 11, 100), kPeak);
  EXPECT_LT(learning_rate(s, kPeak, 12, 100), kPeak);
}

TEST(Schedule, without_warmup_the_first_step_has_the_peak) {
  const Config::Schedule s{.kind = Decay::linear, .warmup_steps = 0, .decay_fraction = 1};
  EXPECT_DOUBLE_EQ(learning_rate(s, kPeak, 1, 100), kPeak);
}

TEST(Schedule, each_kind_has_its_formula_half_way_through_decay) {
  // 100 steps, decay over the last 50: step 76 is 25 of 50 in.
  const auto half_way = [](Decay kind, double final_ratio) {
    const Config::Schedule s{
        .kind = kind, .warmup_steps = 0, .decay_fraction = 0.5, .final_ratio = final_ratio};
    return learning_rate(s, 1, 76, 100);
  };
  EXPECT_NEAR(half_way(Decay::cosine, 0), 0.5, 1e-12);
  EXPECT_NEAR(half_way(Decay::linear, 0), 0.5, 1e-12);
  EXPECT_NEAR(half_way(Decay::wsd, 0), 1 - std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(half_way(Decay::constant, 0), 1, 1e-12);
  EXPECT_NEAR(half_way(Decay::cosine, 0.2), 0.6, 1e-12);
  EXPECT_NEAR(half_way(Decay::wsd, 0.2), 0.2 + 0.8 * (1 - std::sqrt(0.5)), 1e-12);
}

TEST(Schedule, a_quarter_through_a_cosine_is_not_a_straight_line) {
  const Config::Schedule s{.kind = Decay::cosine, .decay_fraction = 1};
  EXPECT_NEAR(learning_rate(s, 1, 26, 100), 0.5 * (1 + std::sqrt(0.5)), 1e-12);
}

TEST(Schedule, the_rate_is_stable_until_decay_begins_and_the_last_step_still_learns) {
  const Config::Schedule s{
      .kind = Decay::linear, .warmup_steps = 10, .decay_fraction = 0.5, .final_ratio = 0};
  for (std::int64_t step = 10; step <= 51; ++step)
    EXPECT_DOUBLE_EQ(learning_rate(s, 1, step, 100), 1) << step;
  EXPECT_NEAR(learning_rate(s, 1, 52, 100), 0.98, 1e-12);
  EXPECT_NEAR(learning_rate(s, 1, 100, 100), 0.02, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 101, 100), 0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 1000, 100), 0);
}

TEST(Schedule, the_rate_never_rises_after_warmup_nor_falls_below_its_end) {
  for (const auto kind : {Decay::cosine, Decay::linear, Decay::constant, Decay::wsd}) {
    const Config::Schedule s{
        .kind = kind, .warmup_steps = 7, .decay_fraction = 0.8, .final_ratio = 0.1};
    double before = learning_rate(s, 1, 7, 93);
    for (std::int64_t step = 8; step <= 120; ++step) {
      const double rate = learning_rate(s, 1, step, 93);
      EXPECT_LE(rate, before) << step;
      EXPECT_GE(rate, 0.1 - 1e-12) << step;
      before = rate;
    }
  }
}

TEST(Schedule, a_warmup_longer_than_the_run_is_its_beginning) {
  const Config::Schedule s{.kind = Decay::cosine, .warmup_steps = 2000, .decay_fraction = 1};
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 20, 20), 0.01);
}

}  // namespace lockstep::schedule_test
