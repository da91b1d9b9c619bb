#include "train/observe/statistics.h"

#include <cmath>
#include <gtest/gtest.h>

namespace lockstep::statistics_test {

StepReport step_with(double loss, double grad_norm, bool skipped = false) {
  StepReport r;
  r.loss = loss;
  r.grad_norm = grad_norm;
  r.skipped = skipped;
  return r;
}

TEST(Statistics, a_z_score_is_the_distance_from_the_mean_in_deviations) {
  SlidingWindow w;
  for (int i = 0; i < 50; ++i) {
    w.add(1);
    w.add(3);
  }
  EXPECT_NEAR(w.z_score(2), 0, 1e-12);
  EXPECT_NEAR(w.z_score(5), 3, 1e-12);
  EXPECT_NEAR(w.z_score(-1), -3, 1e-12);
}

TEST(Statistics, only_the_last_128_values_count) {
  SlidingWindow w;
  for (int i = 0; i < 1000; ++i)
    w.add(1e6 + i);
  for (int i = 0; i < 64; ++i) {
    w.add(1);
    w.add(3);
  }
  EXPECT_NEAR(w.z_score(5), 3, 1e-12);
  w.add(1e6);
  EXPECT_LT(w.z_score(5), 3);
}

TEST(Statistics, a_window_restored_from_its_values_gives_the_same_bits) {
  for (const int count : {5, 16, 128, 200, 1000}) {
    SlidingWindow w, restored;
    for (int i = 0; i < count; ++i)
      w.add(1.0 / (1 + i * 7 % 11));
    for (const double value : w.values())
      restored.add(value);
    for (int i = 0; i < 300; ++i) {
      const double a = w.z_score(0.3), b = restored.z_score(0.3);
      ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << count << ' ' << i;
      w.add(0.01 * i);
      restored.add(0.01 * i);
    }
  }
}

TEST(Statistics, a_score_is_unknown_until_there_is_something_to_compare_with) {
  SlidingWindow w;
  for (int i = 0; i < 15; ++i)
    w.add(i);
  EXPECT_TRUE(std::isnan(w.z_score(1)));
  w.add(15);
  EXPECT_FALSE(std::isnan(w.z_score(1)));
  EXPECT_TRUE(std::isnan(w.z_score(INFINITY)));
  SlidingWindow equal;
  for (int i = 0; i < 100; ++i)
    equal.add(2.5);
  EXPECT_TRUE(std::isnan(equal.z_score(3)));
}

TEST(Statistics, a_skipped_step_is_scored_but_not_remembered) {
  SpikeStatistics with, without;
  for (int i = 0; i < 200; ++i) {
    auto a = step_with(3 + 0.01 * (i % 7), 1 + 0.1 * (i % 5)), b = a;
    with.observe(a);
    without.observe(b);
    auto spike = step_with(50, NAN, true);
    with.observe(spike);
    if (i > 20) {
      EXPECT_GT(spike.loss_z, 100);
    }
    EXPECT_TRUE(std::isnan(spike.grad_norm_z));
  }
  auto a = step_with(3.1, 1.7), b = a;
  with.observe(a);
  without.observe(b);
  EXPECT_EQ(a.loss_z, b.loss_z);
  EXPECT_EQ(a.grad_norm_z, b.grad_norm_z);
  EXPECT_GT(a.loss_z, 0);
}

TEST(Statistics, a_step_is_not_compared_with_itself) {
  SpikeStatistics s;
  for (int i = 0; i < 128; ++i) {
    auto r = step_with(i % 2 == 0 ? 1 : 3, 1);
    s.observe(r);
  }
  auto spike = step_with(1002, 1);
  s.observe(spike);
  EXPECT_NEAR(spike.loss_z, 1000, 1e-9);
}

}  // namespace lockstep::statistics_test
