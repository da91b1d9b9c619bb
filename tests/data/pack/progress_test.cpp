#include "data/pack/progress.h"

#include <gtest/gtest.h>
#include <regex>
#include <thread>

#include "tests/wording.h"

namespace lockstep::testing::progress_test {

TEST(Progress, is_silent_for_a_second_then_reports_share_rate_and_eta) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress("pack", 4'000'000);
    progress.advance(1'000'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1'050));
    progress.advance(1'000'000);
    progress.advance(1'000'000);
  }
  const auto text = ::testing::internal::GetCapturedStderr();
  expect_contains(text, "pack 2.00 MB of 4.00 MB 50.0% | ");
  // The time, the rate and the time that is left depend on the machine.
  static const std::regex clock("^[0-9:]{8} "), rate("[0-9.]+ .B/s"), eta("eta .*");
  expect_wording(
      "data/progress", "half",
      std::regex_replace(std::regex_replace(std::regex_replace(text, clock, ""), rate, "RATE"), eta,
                         "eta TIME"));
}

}  // namespace lockstep::testing::progress_test
