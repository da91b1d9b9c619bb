#include "launch/report/buckets.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "core/philox.h"

namespace lockstep::testing::buckets_test {

double drawn(std::uint64_t i) {
  const auto word = philox(3, 1, i)[0];
  if (word % 13 == 0) return StepMetrics::kUnknown;
  const double value = static_cast<double>(word % 100000) / 1000;
  return word % 997 == 0 ? 1e6 * value : value;  // a spike
}

StepMetrics line_of(std::int64_t step, double loss) {
  StepMetrics line;
  line.step = step;
  line[Metric::loss] = loss;
  return line;
}

TEST(Buckets, each_bucket_has_the_extremes_and_the_mean_of_its_lines) {
  for (const std::int64_t lines : {1, 7, 8, 9, 16, 17, 100, 1000, 5003}) {
    constexpr std::size_t kMost = 8;
    Buckets buckets(kMost);
    std::vector<double> losses;
    for (std::int64_t i = 0; i < lines; ++i) {
      losses.push_back(drawn(static_cast<std::uint64_t>(i)));
      buckets.add(line_of(3 * i + 1, losses.back()));
    }
    ASSERT_LE(buckets.all().size(), kMost);
    const auto each = buckets.lines_each();
    EXPECT_EQ(std::ssize(buckets.all()), (lines + each - 1) / each);
    for (std::size_t b = 0; b < buckets.all().size(); ++b) {
      const auto begin = static_cast<std::int64_t>(b) * each;
      const auto end = std::min(begin + each, lines);
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      double low = kInfinity, high = -kInfinity, sum = 0;
      int count = 0;
      for (auto i = begin; i < end; ++i) {
        const double loss = losses[static_cast<std::size_t>(i)];
        if (std::isnan(loss)) continue;
        low = std::min(low, loss), high = std::max(high, loss), sum += loss, ++count;
      }
      const Bucket& bucket = buckets.all()[b];
      const auto& values = bucket[Metric::loss];
      EXPECT_EQ(values.low, low);
      EXPECT_EQ(values.high, high);
      EXPECT_EQ(values.count, count);
      if (count > 0) {
        EXPECT_NEAR(values.mean(), sum / count, 1e-12 * std::abs(sum));
      }
      EXPECT_EQ(bucket.first_step, 3 * begin + 1);
      EXPECT_EQ(bucket.last_step, 3 * (end - 1) + 1);
      EXPECT_EQ(bucket[Metric::mfu].count, 0);
      EXPECT_TRUE(std::isnan(bucket[Metric::mfu].mean()));
    }
  }
}

TEST(Buckets, a_single_spike_among_a_million_lines_is_kept) {
  Buckets buckets(64);
  for (std::int64_t step = 1; step <= 1'000'000; ++step)
    buckets.add(line_of(step, step == 654'321 ? 1e30 : step == 123'456 ? -5 : 1));
  double low = 1, high = 1;
  for (const Bucket& bucket : buckets.all()) {
    const auto& values = bucket[Metric::loss];
    low = std::min(low, values.low), high = std::max(high, values.high);
    if (values.high > 1) {
      EXPECT_TRUE(bucket.first_step <= 654'321 && 654'321 <= bucket.last_step);
    }
  }
  EXPECT_EQ(low, -5);
  EXPECT_EQ(high, 1e30);
  EXPECT_LE(buckets.all().size(), 64u);
}

TEST(Buckets, the_mean_does_not_overflow_if_the_sum_does) {
  Buckets buckets(2);
  for (int i = 1; i <= 4; ++i)
    buckets.add(line_of(i, 1e308));
  EXPECT_EQ(buckets.all().front()[Metric::loss].mean(), 1e308);
}

}  // namespace lockstep::testing::buckets_test
