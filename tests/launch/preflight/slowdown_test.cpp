#include "launch/preflight/slowdown.h"

#include "tests/launch/preflight/preflight_rig.h"

namespace lockstep::testing::slowdown_test {

constexpr MatmulShape kShape{256, 256, 256, DType::fp32};

TEST(Slowdown, is_the_same_on_all_ranks) {
  std::vector<Slowdown> measured(2);
  on_ranks(pretend_hosts({1, 1}), Mesh{.shard = 2}, [&](PreflightRank& rank) {
    measured[static_cast<std::size_t>(rank.world.rank())] = measure_slowdown(rank, kShape);
    EXPECT_TRUE(rank.findings.empty());
  });
  for (const Slowdown& one : measured) {
    EXPECT_EQ(one.compute_beside, measured.front().compute_beside);
    EXPECT_EQ(one.other_beside, measured.front().other_beside);
    EXPECT_GE(one.compute_beside, 1);
    EXPECT_GE(one.other_beside, 1);
  }
}

TEST(Slowdown, is_not_measured_on_a_single_rank) {
  LoneRank lone;
  const auto measured = measure_slowdown(lone.rank, kShape);
  EXPECT_EQ(measured.compute_beside, 0) << "not measured";
  EXPECT_EQ(measured.other_beside, 1);
}

}  // namespace lockstep::testing::slowdown_test
