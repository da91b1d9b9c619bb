#include "core/affinity.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

namespace lockstep::testing::processors_test {

TEST(Affinity, affinity_is_read_back_as_it_was_set) {
  const auto all = affinity();
  ASSERT_FALSE(all.empty());
  std::thread([&] {
    EXPECT_EQ(affinity(), all);
    set_affinity({&all.back(), 1});
    EXPECT_EQ(affinity(), std::vector<int>{all.back()});
    set_affinity(all);
    EXPECT_EQ(affinity(), all);
  }).join();
}

TEST(Affinity, a_list_has_the_kernels_format) {
  const std::vector<int> processors{0, 1, 2, 5, 7, 8};
  EXPECT_EQ(cpu_list(processors), "0-2,5,7-8");
  EXPECT_EQ(parse_cpu_list("0-2,5,7-8\n"), processors);
  EXPECT_EQ(cpu_list({}), "");
  for (const char* none : {"", "\n", "a", "3-1", "1,", "1-", "-1", "0-99999999", "1 2"})
    EXPECT_EQ(parse_cpu_list(none), std::vector<int>{}) << none;
}

// Two threads on the same CPU get at most half of it each.
TEST(Affinity, time_that_threads_wait_for_a_cpu_is_counted) {
  const auto before = seconds_without_cpu();
  if (!before) GTEST_SKIP() << "this system keeps no schedstat";
  using Clock = std::chrono::steady_clock;
  const auto all = affinity();
  const auto start = Clock::now();
  std::atomic<bool> counted = false;
  const auto compute = [&] {
    set_affinity({all.data(), 1});
    while (!counted && Clock::now() - start < std::chrono::minutes(1))
      if (*seconds_without_cpu() - *before > 0.02) counted = true;
  };
  std::thread one(compute), other(compute);
  one.join();
  other.join();
  EXPECT_TRUE(counted);
  // Sleep is not counted. On a busy host, at least one of many waits is short.
  bool rested = false;
  for (int i = 0; i < 100 && !rested; ++i) {
    const auto begin = Clock::now();
    const double waited = *seconds_without_cpu();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::chrono::duration<double> slept = Clock::now() - begin;
    rested = *seconds_without_cpu() - waited < slept.count() / 2;
  }
  EXPECT_TRUE(rested);
}

}  // namespace lockstep::testing::processors_test
