#include "launch/report/goodput.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "core/json.h"
#include "core/philox.h"
#include "tests/files.h"

namespace lockstep::testing {
namespace {

using Kind = RunTimes::Kind;

std::string start(double time, std::int64_t step) {
  return str(R"({"event":"start","time_seconds":)", time, R"(,"step":)", step,
             R"(,"ranks":2,"hosts":["a","<b>"]})", "\n");
}
std::string steps(double time, std::int64_t first, std::int64_t last, double step_seconds,
                  double data = 0, double checkpoint = 0, double evaluation = 0) {
  return str(R"({"event":"steps","time_seconds":)", time, R"(,"first":)", first, R"(,"last":)",
             last, R"(,"step_seconds":)", step_seconds, R"(,"data_seconds":)", data,
             R"(,"checkpoint_seconds":)", checkpoint, R"(,"evaluation_seconds":)", evaluation,
             "}\n");
}
std::string end(double time, std::int64_t step, int code) {
  return str(R"({"event":"end","time_seconds":)", time, R"(,"step":)", step, R"(,"exit_code":)",
             code, R"(,"why":"done"})", "\n");
}

RunTimes goodput_of(const std::string& text) {
  const TemporaryDirectory directory;
  spit(directory / "ledger.jsonl", text);
  auto goodput = read_run_times(directory / "ledger.jsonl");
  EXPECT_TRUE(goodput.has_value());
  return goodput.value_or(RunTimes());
}

TEST(RunTimes, a_run_that_was_killed_and_went_on_from_before) {
  // Of steps 1 to 30 those from 21 on were taken back: two of the second line's six, and the third.
  const auto goodput =
      goodput_of(start(1000, 0) + steps(1110, 1, 16, 80, 8, 10, 5) + steps(1170, 17, 22, 60) +
                 steps(1250, 23, 30, 80) + start(1300, 20) + steps(1420, 21, 30, 100, 0, 4, 0) +
                 end(1425, 30, 0));
  const auto seconds = [&](Kind kind) { return goodput.seconds[static_cast<std::size_t>(kind)]; };
  EXPECT_DOUBLE_EQ(seconds(Kind::productive), 72 + 40 + 100);
  EXPECT_DOUBLE_EQ(seconds(Kind::replayed), 20 + 80);
  EXPECT_DOUBLE_EQ(seconds(Kind::data), 8);
  EXPECT_DOUBLE_EQ(seconds(Kind::checkpoint), 14);
  EXPECT_DOUBLE_EQ(seconds(Kind::evaluation), 5);
  EXPECT_DOUBLE_EQ(seconds(Kind::restart), 15 + 21);
  EXPECT_DOUBLE_EQ(seconds(Kind::idle), 50);
  EXPECT_DOUBLE_EQ(goodput.wall_seconds, 425);
  ASSERT_EQ(goodput.starts.size(), 2u);
  EXPECT_DOUBLE_EQ(goodput.starts[0].first_step_seconds, 1015);
  EXPECT_DOUBLE_EQ(goodput.starts[0].replayed_from_seconds, 1150);
  EXPECT_FALSE(goodput.starts[0].exit_code.has_value());
  EXPECT_EQ(goodput.starts[1].exit_code, 0);
  EXPECT_EQ(goodput.starts[1].why, "done");
  EXPECT_EQ(goodput.starts[1].last_step, 30);
  EXPECT_EQ(goodput.starts[0].hosts, (std::vector<std::string>{"a", "<b>"}));
}

TEST(RunTimes, kinds_sum_to_the_wall_time_whatever_a_ledger_says) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    std::uint64_t draw = 0;
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(philox(9, round, draw++)[0]) % n;
    };
    std::string text;
    double time = 100;
    std::int64_t step = 0;
    for (auto left = below(6) + 1; left > 0; --left) {
      step = below(step + 1);
      text += start(time, step);
      for (auto lines = below(8); lines > 0; --lines) {
        const auto last = step + below(20) + 1;
        time += static_cast<double>(below(50));  // less than its parts say, at times
        text += steps(time, step + 1, last, static_cast<double>(below(40)),
                      static_cast<double>(below(5)), static_cast<double>(below(5)));
        step = last;
      }
      if (below(2) == 0) text += end(time += 1, step, 75);
      time += static_cast<double>(below(30));
    }
    const auto goodput = goodput_of(text);
    double sum = 0;
    for (const double seconds : goodput.seconds) {
      EXPECT_GE(seconds, 0);
      sum += seconds;
    }
    EXPECT_NEAR(sum, goodput.wall_seconds, 1e-9) << text;
    EXPECT_EQ(goodput.left_out, 0) << goodput.first_left_out;
    for (const auto& one : goodput.starts) {
      EXPECT_LE(one.begin_seconds, one.first_step_seconds);
      EXPECT_LE(one.first_step_seconds, one.replayed_from_seconds);
      EXPECT_LE(one.replayed_from_seconds, one.end_seconds);
    }
  }
}

TEST(RunTimes, damaged_lines_are_counted_and_a_last_one_without_newline_is_not_there) {
  const auto goodput = goodput_of(steps(5, 1, 2, 1) + start(10, 0) + "junk\n" +
                                  steps(20, 1, 10, 8) + steps(15, 11, 12, 1) +
                                  R"({"event":"steps","time_seconds":1e300})"
                                  "\n" +
                                  R"({"event":"end","time_sec)");
  EXPECT_EQ(goodput.left_out, 4);
  EXPECT_EQ(goodput.first_left_out, "line 1: no start is in front of it");
  EXPECT_DOUBLE_EQ(goodput.wall_seconds, 10);
  EXPECT_FALSE(goodput.starts[0].exit_code.has_value());
  const TemporaryDirectory directory;
  EXPECT_FALSE(read_run_times(directory / "ledger.jsonl").has_value());
  spit(directory / "ledger.jsonl", "");
  EXPECT_FALSE(read_run_times(directory / "ledger.jsonl").has_value());
}

TEST(RunTimes, the_last_end_is_said_only_while_nothing_stands_behind_it) {
  const TemporaryDirectory directory;
  const auto ledger = directory / "ledger.jsonl";
  EXPECT_FALSE(last_end(ledger).has_value());
  spit(ledger, start(1, 0) + steps(5, 1, 3, 2) + end(9, 3, 75));
  ASSERT_TRUE(last_end(ledger).has_value());
  EXPECT_EQ(last_end(ledger)->exit_code, 75);
  EXPECT_EQ(last_end(ledger)->time_seconds, 9);
  spit(ledger, start(1, 0) + end(9, 3, 75) + start(10, 3));
  EXPECT_FALSE(last_end(ledger).has_value());
  spit(ledger, start(1, 0) + end(9, 3, 75) + "{\"torn");
  EXPECT_TRUE(last_end(ledger).has_value());
  spit(ledger, std::string(200'000, 'x') + "\n" + end(9, 3, 1));
  EXPECT_TRUE(last_end(ledger).has_value());
  spit(ledger, "{}\n");
  EXPECT_FALSE(last_end(ledger).has_value());
}

}  // namespace
}  // namespace lockstep::testing
