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
    EXPECT_NEAR(learning_rate(row.schedule, kPeak, row.step, row.steps), kPeak * row.rate,
                1e-12 * kPeak)
        << "row " << &row - rows;
}

TEST(Schedule, the_rate_never_rises_after_warmup_nor_falls_below_its_end) {
  for (const auto kind : {Decay::cosine, Decay::linear, Decay::constant, Decay::wsd}) {
    const auto s = schedule(kind, 7, 0.8, 0.1);
    double before = learning_rate(s, 1, 7, 93);
    for (std::int64_t step = 8; step <= 120; ++step) {
      const double rate = learning_rate(s, 1, step, 93);
      EXPECT_LE(rate, before) << step;
      EXPECT_GE(rate, 0.1 - 1e-12) << step;
      before = rate;
    }
  }
}

}  // namespace lockstep::schedule_test
