#include "kernels/peak.h"

#include <chrono>
#include <cmath>
#include <gtest/gtest.h>

#include "kernels/matmul.h"
#include "tests/testing.h"

namespace lockstep::testing::peak_test {

class Peak : public ::testing::TestWithParam<DType> {};

// Compares the peak with the best of some large matmuls. The factor is loose. If it is exceeded,
// both are measured again, because other work may have slowed only one of the measurements.
TEST_P(Peak, is_not_far_below_the_rate_of_a_matmul) {
  Bench b;
  constexpr std::int64_t kSize = 384;
  const auto x = b.random({kSize, kSize}, GetParam()), weight = b.random(x.shape, GetParam());
  const auto y = b.poisoned(x.shape, GetParam());
  double peak = 0, best = 0;
  for (int attempt = 0; attempt < 4 && peak <= best / 4; ++attempt) {
    peak = measure_peak_flops(b.stream, GetParam());
    ASSERT_TRUE(std::isfinite(peak));
    best = 0;
    for (int i = 0; i < 5; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      matmul_forward(b.stream, b.arena, y, x, weight);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      best = std::max(best, 2.0 * kSize * kSize * kSize / seconds.count());
    }
  }
  EXPECT_GT(peak, best / 4);
}

TEST(PeakContract, measuring_streams_and_integers_are_rejected) {
  Bench b;
  Stream measuring(Device{}, "measure", Stream::Mode::measuring, 2);
  EXPECT_THROW(measure_peak_flops(measuring, DType::fp32), Error);
  EXPECT_THROW(measure_peak_flops(b.stream, DType::int32), Error);
}

INSTANTIATE_TEST_SUITE_P(types, Peak, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::peak_test
