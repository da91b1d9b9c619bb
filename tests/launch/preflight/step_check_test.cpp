#include "launch/preflight/step_check.h"

#include "tests/launch/preflight/preflight_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::step_check_test {

struct Checked {
  std::vector<StepCosts> costs;  // of each rank
  std::vector<std::vector<Finding>> findings;
};

// Runs check_steps() on two hosts with a rank each. The slower host sends `bytes_per_second`.
Checked steps_on_two_hosts(double bytes_per_second) {
  const Config config = small_run(2, 1);
  Checked all{.costs = std::vector<StepCosts>(2), .findings = {}};
  all.findings = on_ranks(pretend_hosts({1, 1}), Mesh{.shard = 2}, [&](PreflightRank& rank) {
    all.costs[static_cast<std::size_t>(rank.world.rank())] =
        check_steps(rank, config, bytes_per_second);
  });
  return all;
}

TEST(StepCheck, each_rank_measures_its_operators) {
  const auto all = steps_on_two_hosts(1e9);
  for (const auto& costs : all.costs) {
    EXPECT_GT(costs.operators.times().size(), 10u);
    EXPECT_GT(costs.constant_bytes, 0);
  }
  for (const auto& findings : all.findings) {
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings.front().failure, "");
    EXPECT_GT(findings.front().value, 0);
  }
}

// A step gathers about 70,000 parameters in fp32 and sums their gradients.
TEST(StepCheck, a_network_too_slow_for_steps_is_a_fault_of_all_hosts) {
  const auto all = steps_on_two_hosts(5e3);
  EXPECT_TRUE(all.costs[0].operators.times().empty());
  ASSERT_EQ(all.findings[0].size(), 1u);
  const Finding& fault = all.findings[0].front();
  expect_contains(fault.failure, "5.00 kB/s");
  expect_wording("launch/preflight_checks", "steps over a slow network", fault.failure);
  EXPECT_EQ(fault.whose, "hosts n1, n2");
  EXPECT_TRUE(all.findings[1].empty());
}

}  // namespace lockstep::testing::step_check_test
