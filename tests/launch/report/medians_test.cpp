#include "launch/report/medians.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>

#include "core/median.h"
#include "core/philox.h"

namespace lockstep::testing::medians_test {

double uniform(std::uint64_t i) {  // above 0, below 1
  return (philox(9, 4, i)[0] + 0.5) / 0x1p32;
}

TEST(Medians, are_within_a_thousandth_of_the_exact_medians) {
  const std::pair<const char*, std::function<double(std::uint64_t)>> kinds[] = {
      {"a few slow", [](auto i) { return (0.4 + 0.05 * uniform(i)) * (i % 50 == 0 ? 10 : 1); }},
      {"two kinds", [](auto i) { return i % 5 < 2 ? 1e-3 + 1e-4 * uniform(i) : 3 + uniform(i); }},
      {"any size", [](auto i) { return std::exp(40 * uniform(i) - 20); }},
      {"half is 0", [](auto i) { return i % 2 == 0 ? 0.0 : uniform(i); }},
      {"rates", [](auto i) { return 1e7 * uniform(i); }},
      {"unknown in part", [](auto i) { return i % 3 == 0 ? std::nan("") : uniform(i); }}};
  for (const auto& [kind, value] : kinds)
    for (const std::uint64_t count : {0u, 1u, 2u, 3u, 100u, 70'001u}) {
      MedianOfMany many;
      std::vector<double> all;
      for (std::uint64_t i = 0; i < count; ++i) {
        many.add(value(i));
        if (!std::isnan(value(i))) all.push_back(value(i));
      }
      const double exact = median(all);
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(many.median())) << kind << count;
        continue;
      }
      EXPECT_NEAR(many.median(), exact, exact / 1024) << kind << count;
    }
}

TEST(Medians, are_exact_for_equal_values_and_finite_for_extreme_ones) {
  MedianOfMany equal, any;
  for (int i = 0; i < 1000; ++i)
    equal.add(0.375);
  EXPECT_EQ(equal.median(), 0.375);
  for (const double value : {1e300, 1e308, 1e-300, 5e-324, 0.0, -1.0})
    any.add(value);
  EXPECT_TRUE(std::isfinite(any.median()));
}

TEST(Medians, are_kept_for_each_metric) {
  Medians medians;
  for (int i = 1; i <= 9; ++i) {
    StepMetrics line;
    line[Metric::step_seconds] = i;
    if (i > 6) line[part(Component::attention)] = 0.25;
    medians.add(line);
  }
  EXPECT_EQ(medians[Metric::step_seconds], 5);
  EXPECT_EQ(medians[part(Component::attention)], 0.25);
  EXPECT_TRUE(std::isnan(medians[Metric::mfu]));
}

}  // namespace lockstep::testing::medians_test
