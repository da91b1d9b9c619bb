#include "train/preflight/rank_waits.h"

#include <thread>

#include "dist/thread_world.h"
#include "tests/train/preflight/preflight_rig.h"

namespace lockstep::testing::rank_waits_test {

TEST(RankWaits, a_steps_own_time_leaves_collectives_out) {
  Stream stream(Device{}, "compute");
  std::vector<std::unique_ptr<OpLog>> logs;
  std::vector<const OpLog*> steps;
  const auto call = [&](Op::Kind kind, int milliseconds) {
    Op op;
    op.name = "a_call";
    op.kind = kind;
    const OpLog::Call here(stream, op);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  };
  for (const int milliseconds : {30, 400, 10}) {  // of steps, of which one is disturbed
    steps.push_back(logs.emplace_back(std::make_unique<OpLog>()).get());
    stream.set_op_log(logs.back().get());
    call(Op::Kind::memory, milliseconds / 2);
    call(Op::Kind::collective, 300);
    call(Op::Kind::product, milliseconds / 2);
    stream.set_op_log(nullptr);
  }
  EXPECT_GE(own_seconds(steps), 0.03);
  EXPECT_LT(own_seconds(steps), 0.3);
}

// Rank 1 comes 40 ms later than the others to each of two collectives.
TEST(RankWaits, who_comes_last_does_not_wait) {
  run_thread_ranks(3, [](World& world) {
    const Topology topology = pretend_hosts({3});
    Stream compute(Device{}, "compute");
    Comms comms = make_comms(world, Mesh{{1, 1, 3}}, &topology);
    PreflightRank rank{world, topology, comms, compute, nullptr, {}};
    OpLog log;
    compute.set_op_log(&log);
    for (int i = 0; i < 2; ++i) {
      {
        Op op;
        op.name = "a_call";
        const OpLog::Call here(compute, op);
        std::this_thread::sleep_for(std::chrono::milliseconds(world.rank() == 1 ? 60 : 20));
      }
      comms.tensor->barrier(compute);
    }
    compute.set_op_log(nullptr);
    const double share = wait_share(rank, {&log});
    // Two ranks wait 80 of their 40 ms, one nothing: (2 + 0 + 2) / 3.
    EXPECT_GT(share, 1.0);
    EXPECT_LT(share, 1.6);
  });
}

}  // namespace lockstep::testing::rank_waits_test
