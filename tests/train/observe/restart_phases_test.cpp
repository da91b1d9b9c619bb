#include "train/observe/restart_phases.h"

#include <gtest/gtest.h>
#include <random>

#include "tests/train/log.h"
#include "train/observe/ledger.h"

namespace lockstep::testing::restart_phases_test {

using Kind = LedgerLine::Kind;

LedgerLine start_at(double time, std::int64_t step, RestartSeconds restart = {},
                    StartSeconds starting = {}) {
  return {.kind = Kind::start,
          .time_seconds = time,
          .step = step,
          .ranks = 1,
          .restart = restart,
          .starting = starting};
}
LedgerLine steps_at(double time, std::int64_t first, std::int64_t last, double seconds) {
  return {.kind = Kind::steps,
          .time_seconds = time,
          .first = first,
          .last = last,
          .step_seconds = seconds};
}
LedgerLine end_at(double time) {
  return {.kind = Kind::end, .time_seconds = time, .exit_code = 75};
}

// stopped, detect, judge, prepare, meet, setup, load
void expect_phases(const RestartPhases& phases, std::array<double, 7> expected) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(phases.parts()[i].second, expected[i], 1e-6) << phases.parts()[i].first;
}

TEST(RestartPhases, a_supervised_restart_has_all_phases_from_the_last_step_to_the_first) {
  const std::vector lines{
      start_at(1000, 0, {}, {.meet = 4, .load = 4}),
      steps_at(1110, 1, 10, 100),
      end_at(1115),
      start_at(1120, 5, {.judge = 2, .prepare = 3}, {.meet = 1, .load = 6}),
      steps_at(1140, 6, 10, 10),
  };
  const auto starts = starts_of(lines);
  expect_phases(starts[0].phases, {});
  EXPECT_EQ(starts[0].replays_seconds, 0);
  expect_phases(starts[1].phases, {0, 5, 2, 3, 1, 3, 6});
  EXPECT_DOUBLE_EQ(starts[1].phases.total(), 1130 - 1110);
  EXPECT_DOUBLE_EQ(starts[1].replays_seconds, 50);
  expect_phases(goodput_of(lines).phases, {0, 5, 2, 3, 1, 3, 6});
}

TEST(RestartPhases, a_start_without_supervise_was_stopped_and_an_older_program_has_one_phase) {
  const std::vector lines{start_at(0, 0),          steps_at(10, 1, 10, 8), start_at(30, 10),
                          steps_at(35, 11, 12, 4), start_at(36, 12),       steps_at(39, 13, 13, 1)};
  expect_phases(starts_of(lines)[1].phases, {20, 0, 0, 0, 0, 1, 0});
  expect_phases(starts_of(lines)[2].phases, {1, 0, 0, 0, 0, 2, 0});
  expect_phases(goodput_of(lines).phases, {21, 0, 0, 0, 0, 3, 0});
}

// The leader's clock and that of rank 0's host differ.
TEST(RestartPhases, measured_times_are_cut_to_the_time_that_passed) {
  std::vector lines{start_at(0, 0), steps_at(10, 1, 10, 10),
                    start_at(15, 10, {.judge = 3, .prepare = 4}, {.meet = 5, .load = 2}),
                    steps_at(22, 11, 11, 1)};
  expect_phases(goodput_of(lines).phases, {0, 0, 1, 4, 5, 0, 1});
  lines[2].restart = {.judge = -1, .prepare = 1e9};
  lines[2].starting = {.meet = 0, .load = 1e9};
  expect_phases(goodput_of(lines).phases, {0, 0, 0, 5, 0, 0, 6});
}

TEST(RestartPhases, a_start_without_steps_is_counted_once) {
  // Killed before its first line of steps: the next start has its time.
  const std::vector killed{start_at(0, 0), steps_at(10, 1, 10, 10), start_at(12, 10),
                           start_at(30, 10), steps_at(34, 11, 11, 1)};
  expect_phases(starts_of(killed)[1].phases, {2, 0, 0, 0, 0, 0, 0});
  expect_phases(starts_of(killed)[2].phases, {18, 0, 0, 0, 0, 3, 0});
  // It failed, and the second `end` has the cause.
  const std::vector failed{start_at(0, 0),
                           steps_at(10, 1, 10, 10),
                           start_at(12, 10, {}, {.meet = 1, .load = 2}),
                           end_at(17),
                           end_at(18),
                           start_at(20, 10),
                           steps_at(24, 11, 11, 1)};
  expect_phases(starts_of(failed)[1].phases, {2, 0, 0, 0, 1, 3, 2});
  expect_phases(starts_of(failed)[2].phases, {2, 0, 0, 0, 0, 3, 0});
}

// In these runs, all time without a step is between two steps or before the first one.
TEST(RestartPhases, sum_to_the_time_without_steps) {
  std::mt19937 random{std::random_device{}()};
  const auto draw = [&](double most) {
    return std::uniform_real_distribution<double>(0, most)(random);
  };
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<LedgerLine> lines;
    double now = 1e9, gaps = 0, step_end = 0;
    for (int start = 0; start < 5; ++start) {
      now += draw(50);
      const auto from = static_cast<std::int64_t>(draw(5));
      lines.push_back(start_at(now, from, {.judge = draw(9), .prepare = draw(9)},
                               {.meet = draw(2), .load = draw(2)}));
      now += draw(9);
      if (start > 0 && draw(1) < 0.3) {  // it fails before its first step
        lines.push_back(end_at(now));
        continue;
      }
      if (start > 0) gaps += now - step_end;
      for (std::int64_t step = from + 1; step < from + 4; ++step) {
        const double seconds = draw(5);
        lines.push_back(steps_at(now += seconds, step, step, seconds));
      }
      step_end = now;
      if (draw(1) < 0.5) lines.push_back(end_at(now += draw(9)));
    }
    lines.push_back(start_at(now, 0));
    lines.push_back(steps_at(now + 1, 1, 1, 1));
    gaps += now - step_end;
    double each = 0, replayed = 0;
    for (const auto& start : starts_of(lines)) {
      for (const auto& [phase, seconds] : start.phases.parts())
        EXPECT_GE(seconds, 0) << phase;
      each += start.phases.total();
      replayed += start.replays_seconds;
    }
    EXPECT_NEAR(each, gaps, 1e-5);
    EXPECT_NEAR(goodput_of(lines).phases.total(), gaps, 1e-5);
    EXPECT_NEAR(goodput_of(lines).replayed_seconds, replayed, 1e-6);
  }
}

TEST(RestartPhases, the_log_line_has_the_phases_that_took_time) {
  expect_wording("train/ledger", "a supervised restart",
                 in_words(RestartPhases{.detect = 4.95,
                                        .judge = 0.12,
                                        .prepare = 0.021,
                                        .meet = 0.05,
                                        .setup = 0.3,
                                        .load = 0.29}));
  expect_wording("train/ledger", "a restart by a person",
                 in_words(RestartPhases{.stopped = 50400, .setup = 3, .load = 61}));
}

}  // namespace lockstep::testing::restart_phases_test
