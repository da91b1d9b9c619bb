#include "launch/preflight/rank_waits.h"

#include <algorithm>
#include <array>
#include <thread>

#include "tests/launch/preflight/preflight_rig.h"

namespace lockstep::testing::rank_waits_test {

// Logs a call of `kind` on `stream` that takes `time`.
void call(Stream& stream, Op::Kind kind, std::chrono::milliseconds time) {
  Op op;
  op.name = "a_call";
  op.kind = kind;
  const OpLog::Call here(stream, op);
  std::this_thread::sleep_for(time);
}

// One of three steps is disturbed, and the median ignores it.
TEST(RankWaits, own_seconds_exclude_collectives_and_are_the_median_of_steps) {
  Stream stream(Device{}, "compute");
  std::array<OpLog, 3> logs;
  std::vector<const OpLog*> steps;
  std::vector<double> own;
  for (const int milliseconds : {2, 40, 1}) {
    OpLog& log = logs[steps.size()];
    steps.push_back(&log);
    stream.set_op_log(&log);
    call(stream, Op::Kind::memory, std::chrono::milliseconds(milliseconds));
    call(stream, Op::Kind::collective, std::chrono::milliseconds(3));
    call(stream, Op::Kind::product, std::chrono::milliseconds(milliseconds));
    stream.set_op_log(nullptr);
    own.push_back(log.entries()[0].seconds + log.entries()[2].seconds);
    EXPECT_GE(own.back(), 2e-3 * milliseconds);
  }
  std::ranges::sort(own);
  EXPECT_EQ(own_seconds(steps), own[1]);
}

// Rank 1 enters each of two collectives last. The wait of a rank is its time in a collective beyond
// the shortest one of all ranks. The share is relative to the rank's own compute time.
TEST(RankWaits, the_rank_that_arrives_last_does_not_wait) {
  struct Times {
    double own = 0;
    std::vector<double> collectives = {};
  };
  std::array<Times, 3> times;
  std::array<double, 3> shares{};
  on_ranks(pretend_hosts({3}), Mesh{.tensor = 3}, [&](PreflightRank& rank) {
    const auto r = static_cast<std::size_t>(rank.world.rank());
    OpLog log;
    rank.compute.set_op_log(&log);
    for (int i = 0; i < 2; ++i) {
      call(rank.compute, Op::Kind::memory, std::chrono::milliseconds(r == 1 ? 30 : 10));
      rank.comms.tensor->barrier(rank.compute);
    }
    rank.compute.set_op_log(nullptr);
    for (const auto& entry : log.entries())
      if (entry.op.kind == Op::Kind::collective)
        times[r].collectives.push_back(entry.seconds);
      else
        times[r].own += entry.seconds;
    shares[r] = wait_share(rank, {&log});
  });
  double expected = 0;
  for (const Times& mine : times)
    for (std::size_t i = 0; i < 2; ++i) {
      double least = mine.collectives.at(i);
      for (const Times& other : times)
        least = std::min(least, other.collectives.at(i));
      expected += (mine.collectives[i] - least) / mine.own / 3;
    }
  EXPECT_GT(expected, 0);
  for (const double share : shares)
    EXPECT_NEAR(share, expected, 1e-4 * expected) << "ranks tell each other floats";
}

}  // namespace lockstep::testing::rank_waits_test
