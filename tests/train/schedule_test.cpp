#include "train/schedule.h"

#include <cmath>
#include <gtest/gtest.h>

namespace lockstep::schedule_test {

using Decay = Config::Decay;

Config::Schedule schedule(Decay kind, std::int64_t warmup_steps, double decay_fraction,
                          double final_ratio = 0) {
  return {.kind = kind,
          .warmup_steps = warmup_steps,
          .decay_fraction = decay_fraction,
          .final_ratio = final_ratio};
}

LearningRate of(const Config::Schedule& schedule, double peak, std::int64_t steps) {
  Config config;
  config.schedule = schedule;
  config.optimizer.learning_rate = peak;
  config.train.steps = steps;
  return LearningRate(config);
}

TEST(Schedule, has_the_rates_of_its_formula) {
  struct Row {
    Config::Schedule schedule;
    std::int64_t step, steps;
    double rate;  // of the peak
  };
  const auto warmup = schedule(Decay::cosine, 10, 1), late = schedule(Decay::linear, 10, 0.5);
  const Row rows[] = {
      // Warmup is a straight line from the first step to the peak. Without warmup the first step
      // has the peak.
      {warmup, 1, 100, 0.1},
      {warmup, 5, 100, 0.5},
      {warmup, 9, 100, 0.9},
      {warmup, 10, 100, 1},
      {warmup, 11, 100, 1},
      {schedule(Decay::linear, 0, 1), 1, 100, 1},
      // A run shorter than its warmup has the first rates of the warmup.
      {schedule(Decay::cosine, 2000, 1), 20, 20, 0.01},
      // Decay over the last 50 steps of 100: step 76 is half way.
      {schedule(Decay::cosine, 0, 0.5), 76, 100, 0.5},
      {schedule(Decay::linear, 0, 0.5), 76, 100, 0.5},
      {schedule(Decay::wsd, 0, 0.5), 76, 100, 1 - std::sqrt(0.5)},
      {schedule(Decay::constant, 0, 0.5), 76, 100, 1},
      {schedule(Decay::cosine, 0, 0.5, 0.2), 76, 100, 0.6},
      {schedule(Decay::wsd, 0, 0.5, 0.2), 76, 100, 0.2 + 0.8 * (1 - std::sqrt(0.5))},
      // A quarter through a cosine.
      {schedule(Decay::cosine, 0, 1), 26, 100, 0.5 * (1 + std::sqrt(0.5))},
      // The rate is stable until decay begins, and the last step still learns.
      {late, 10, 100, 1},
      {late, 30, 100, 1},
      {late, 51, 100, 1},
      {late, 52, 100, 0.98},
      {late, 100, 100, 0.02},
      {late, 101, 100, 0},
      {late, 1000, 100, 0},
  };
  constexpr double kPeak = 3e-3;
  for (const auto& row : rows)
    EXPECT_NEAR(of(row.schedule, kPeak, row.steps).at(row.step), kPeak * row.rate, 1e-12 * kPeak)
        << "row " << &row - rows;
}

TEST(Schedule, the_rate_never_rises_after_warmup_nor_falls_below_its_end) {
  for (const auto kind : {Decay::cosine, Decay::linear, Decay::constant, Decay::wsd}) {
    const auto s = schedule(kind, 7, 0.8, 0.1);
    const auto scheduled = of(s, 1, 93);
    double before = scheduled.at(7);
    for (std::int64_t step = 8; step <= 120; ++step) {
      const double rate = scheduled.at(step);
      EXPECT_LE(rate, before) << step;
      EXPECT_GE(rate, 0.1 - 1e-12) << step;
      before = rate;
    }
  }
}

TEST(Schedule, decay_steps_replace_the_fraction) {
  auto s = schedule(Decay::wsd, 10, 0.5);
  s.decay_steps = 20;
  const auto rate = of(s, 1, 100), half = of(schedule(Decay::wsd, 10, 0.2), 1, 100);
  EXPECT_EQ(rate.last_before_decay(), 80);
  for (std::int64_t step = 1; step <= 100; ++step)
    EXPECT_EQ(rate.at(step), half.at(step)) << step;
  // A longer run has a longer stable part, and the same decay.
  EXPECT_EQ(of(s, 1, 1000).last_before_decay(), 980);
  EXPECT_EQ(of(s, 1, 1000).at(991), rate.at(91));
}

// A schedule that begins after step 100 is that of a run of its own, 100 steps later.
TEST(Schedule, begins_again_in_an_extended_run) {
  for (const auto kind : {Decay::cosine, Decay::linear, Decay::wsd}) {
    auto rate = of(schedule(kind, 0, 0.5, 0.1), 2, 300);
    rate.begin = 100;
    const auto alone = of(schedule(kind, 0, 0.5, 0.1), 2, 200);
    for (std::int64_t step = 1; step <= 210; ++step)
      EXPECT_EQ(rate.at(100 + step), alone.at(step)) << step;
  }
  // Warmup rises from the rate before.
  auto rate = of(schedule(Decay::cosine, 10, 1), 2, 300);
  rate.begin = 100;
  rate.initial = 1;
  EXPECT_EQ(rate.at(105), 1.5);
  EXPECT_EQ(rate.at(110), 2);
  EXPECT_EQ(rate.last_before_decay(), 110);
}

}  // namespace lockstep::schedule_test
