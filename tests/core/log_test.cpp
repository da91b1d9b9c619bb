#include "core/log.h"

#include <functional>
#include <gtest/gtest.h>

#include "tests/files.h"

namespace lockstep::log_test {

// Log output without the leading time.
std::string said_as(int rank, const std::function<void()>& say) {
  log_as_rank(rank);
  ::testing::internal::CaptureStderr();
  say();
  const auto text = ::testing::internal::GetCapturedStderr();
  log_as_rank(0);
  return text.empty() ? "" : text.substr(std::string("00:00:00 ").size());
}

TEST(Log, rank_0_logs_events_that_are_the_same_on_all_ranks) {
  const auto info = [] { log_info("step ", 1); };
  const auto warning = [] { log_warning("step ", 1, " is skipped"); };
  EXPECT_EQ(said_as(0, info), "step 1\n");
  EXPECT_EQ(said_as(0, warning), "warning: step 1 is skipped\n");
  EXPECT_EQ(said_as(3, info), "");
  EXPECT_EQ(said_as(3, warning), "");
}

TEST(Log, each_rank_logs_its_own_events) {
  const auto warning = [] { log_own_warning("my disk is full"); };
  EXPECT_EQ(said_as(0, warning), "warning: my disk is full\n");
  EXPECT_EQ(said_as(3, warning), "rank 3: warning: my disk is full\n");
  EXPECT_EQ(said_as(3, [] { log_line(LogLevel::error, "it broke"); }), "rank 3: error: it broke\n");
}

}  // namespace lockstep::log_test
