#include "train/stragglers.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace lockstep::testing {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

TEST(Stragglers, the_slowest_rank_is_compared_with_the_median_of_all) {
  const std::vector seconds{1.0, 1.5, 1.2, 1.1};
  const auto slowest = slowest_of(seconds).value();
  EXPECT_EQ(slowest.rank, 1);
  EXPECT_EQ(slowest.seconds, 1.5);
  EXPECT_EQ(slowest.median, 1.1);  // of an even number the lower one
  EXPECT_DOUBLE_EQ(slowest.ratio(), 1.5 / 1.1);
  EXPECT_DOUBLE_EQ(slowest_of(std::vector{2.0, 3.0})->ratio(), 1.5);
}

TEST(Stragglers, ranks_whose_seconds_are_not_known_are_left_out) {
  EXPECT_EQ(slowest_of(std::vector{1.0, kUnknown, 3.0})->rank, 2);
  EXPECT_FALSE(slowest_of(std::vector{kUnknown, 1.0}).has_value());
  EXPECT_FALSE(slowest_of(std::vector{kUnknown, kUnknown}).has_value());
  EXPECT_FALSE(slowest_of(std::vector{1.0}).has_value());
  EXPECT_FALSE(slowest_of(std::vector{0.0, 0.0}).has_value());
}

TEST(Stragglers, a_rank_is_named_once_it_stood_out_several_times_and_then_now_and_then) {
  const SlowestRank slow{.rank = 3, .seconds = 1.2, .median = 1};
  Stragglers stragglers;
  std::vector<int> named;
  for (int report = 1; report <= 25; ++report)
    if (stragglers.observe(slow)) named.push_back(report);
  EXPECT_EQ(named, (std::vector{3, 13, 23}));
  EXPECT_EQ(stragglers.reports(), 25);
}

TEST(Stragglers, who_is_slow_by_turns_or_by_little_is_not_named) {
  Stragglers by_turns, by_little, again;
  for (int report = 0; report < 20; ++report) {
    EXPECT_FALSE(by_turns.observe({.rank = report % 2, .seconds = 2, .median = 1}));
    EXPECT_FALSE(by_little.observe({.rank = 1, .seconds = 1.09, .median = 1}));
    const double seconds = report % 3 == 2 ? 1.0 : 2.0;
    EXPECT_FALSE(again.observe({.rank = 1, .seconds = seconds, .median = 1}));
  }
}

}  // namespace
}  // namespace lockstep::testing
