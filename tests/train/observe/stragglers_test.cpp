#include "train/observe/stragglers.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace lockstep::testing::stragglers_test {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

TEST(Stragglers, the_slowest_rank_is_compared_with_the_median_of_all) {
  const std::vector seconds{1.0, 1.5, 1.2, 1.1};
  const auto slowest = slowest_of(seconds).value();
  EXPECT_EQ(slowest.rank, 1);
  EXPECT_EQ(slowest.seconds, 1.5);
  EXPECT_EQ(slowest.median, 1.1);  // the lower median of an even number
  EXPECT_DOUBLE_EQ(slowest.ratio(), 1.5 / 1.1);
  EXPECT_DOUBLE_EQ(slowest_of(std::vector{2.0, 3.0})->ratio(), 1.5);
}

TEST(Stragglers, ranks_with_unknown_seconds_are_ignored) {
  EXPECT_EQ(slowest_of(std::vector{1.0, kUnknown, 3.0})->rank, 2);
  EXPECT_FALSE(slowest_of(std::vector{kUnknown, 1.0}).has_value());
  EXPECT_FALSE(slowest_of(std::vector{kUnknown, kUnknown}).has_value());
  EXPECT_FALSE(slowest_of(std::vector{1.0}).has_value());
  EXPECT_FALSE(slowest_of(std::vector{0.0, 0.0}).has_value());
}

TEST(Stragglers, a_rank_is_named_after_three_slow_comparisons_and_then_in_every_tenth) {
  Stragglers stragglers;
  std::vector<std::int64_t> named;
  for (std::int64_t report = 1; report <= 25; ++report)
    if (const auto slow = stragglers.observe(std::vector{1.0, 1.0, 0.9, 1.2})) {
      named.push_back(report);
      EXPECT_EQ(slow->ranks, std::vector{3});
      EXPECT_EQ(slow->reports, report);
      EXPECT_EQ(slow->seconds, 1.2);
      EXPECT_EQ(slow->median, 1.0);
      EXPECT_DOUBLE_EQ(slow->ratio(), 1.2);
    }
  EXPECT_EQ(named, (std::vector<std::int64_t>{3, 13, 23}));
}

TEST(Stragglers, ranks_that_are_slow_by_turns_or_by_little_are_not_named) {
  Stragglers by_turns, by_little, again;
  for (int report = 0; report < 20; ++report) {
    std::vector turn{1.0, 1.0, 1.0, 1.0};
    turn[static_cast<std::size_t>(report % 2)] = 2;
    EXPECT_FALSE(by_turns.observe(turn).has_value());
    EXPECT_FALSE(by_little.observe(std::vector{1.0, 1.09, 1.0}).has_value());
    EXPECT_FALSE(again.observe(std::vector{1.0, report % 3 == 2 ? 1.0 : 2.0, 1.0}).has_value());
  }
}

// On a slow host the slowest rank varies, and all ranks are slow all the time.
TEST(Stragglers, all_ranks_of_a_slow_host_are_named) {
  Stragglers stragglers;
  const auto report = [&](double second, double third) {
    return stragglers.observe(std::vector{1.0, 1.02, second, third, 0.98});
  };
  EXPECT_FALSE(report(1.3, 1.2).has_value());
  EXPECT_FALSE(report(1.2, 1.3).has_value());
  const auto slow = report(1.4, 1.3).value();
  EXPECT_EQ(slow.ranks, (std::vector{2, 3}));
  EXPECT_EQ(slow.reports, 3);
  EXPECT_EQ(slow.seconds, 1.4);
  EXPECT_FALSE(report(1.4, 1.0).has_value()) << "one of them is still slow, and was named before";
  for (int i = 0; i < 2; ++i)
    EXPECT_FALSE(report(1.4, 1.3).has_value());
  const auto both = report(1.2, 1.3).value();  // one is new among them
  EXPECT_EQ(both.ranks, (std::vector{2, 3}));
  EXPECT_EQ(both.reports, 3) << "the smaller number of the two";
}

TEST(Stragglers, unknown_seconds_of_all_ranks_are_not_a_comparison) {
  Stragglers stragglers;
  const std::vector slow{1.0, 1.0, 2.0};
  EXPECT_FALSE(stragglers.observe(slow).has_value());
  EXPECT_FALSE(stragglers.observe(slow).has_value());
  EXPECT_FALSE(stragglers.observe(std::vector{kUnknown, kUnknown, 1.0}).has_value());
  EXPECT_TRUE(stragglers.observe(slow).has_value());
}

}  // namespace lockstep::testing::stragglers_test
