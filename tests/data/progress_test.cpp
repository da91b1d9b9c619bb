#include "data/progress.h"

#include <gtest/gtest.h>
#include <thread>

#include "tests/files.h"

namespace lockstep::testing::progress_test {

TEST(Progress, is_silent_for_a_second_then_says_share_rate_and_eta) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress("pack", 4'000'000);
    progress.advance(1'000'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1'050));
    progress.advance(1'000'000);
    progress.advance(1'000'000);
  }
  const auto text = ::testing::internal::GetCapturedStderr();
  expect_contains(text, "pack 2.00 MB of 4.00 MB 50.0% | ");  // the rate depends on the machine
  expect_contains(text, " MB/s | eta ");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

}  // namespace lockstep::testing::progress_test
