#include "train/preflight/slowdown.h"

#include "dist/thread_world.h"
#include "tests/train/preflight/preflight_rig.h"

namespace lockstep::testing::slowdown_test {

constexpr ProductShape kShape{256, 256, 256, DType::fp32};

TEST(Slowdown, is_one_of_all_ranks) {
  const Topology topology = pretend_hosts({1, 1, 1});
  std::vector<Slowdown> measured(3);
  run_thread_ranks(3, [&](World& world) {
    Stream compute(Device{}, "compute");
    Comms comms = make_comms(world, Mesh{{1, 3, 1}}, &topology);
    PreflightRank rank{world, topology, comms, compute, nullptr, {}};
    measured[static_cast<std::size_t>(world.rank())] = measure_slowdown(rank, kShape);
    EXPECT_TRUE(rank.findings.empty());
  });
  for (const Slowdown& one : measured) {
    EXPECT_EQ(one.compute_beside, measured.front().compute_beside);
    EXPECT_EQ(one.other_beside, measured.front().other_beside);
    EXPECT_GE(one.compute_beside, 1);
    EXPECT_GE(one.other_beside, 1);
  }
}

TEST(Slowdown, is_none_of_a_rank_alone) {
  LoneRank lone;
  const auto measured = measure_slowdown(lone.rank, kShape);
  EXPECT_EQ(measured.compute_beside, 0) << "not measured";
  EXPECT_EQ(measured.other_beside, 1);
}

}  // namespace lockstep::testing::slowdown_test
