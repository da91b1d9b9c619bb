#include "train/preflight/step_check.h"

#include "dist/thread_world.h"
#include "tests/files.h"
#include "tests/train/preflight/preflight_rig.h"

namespace lockstep::testing::step_check_test {

struct Checked {
  StepCosts costs;
  std::vector<Finding> findings;
};

// By each rank of two hosts, of which the slower one sends so many bytes a second.
std::vector<Checked> steps_on_two_hosts(double bytes_per_second) {
  Config config = tiny_config();
  config.layout.ranks = config.layout.shard = 2;
  const Topology topology = pretend_hosts({1, 1});
  std::vector<Checked> all(2);
  run_thread_ranks(2, [&](World& world) {
    Stream compute(Device{}, "compute");
    Comms comms = make_comms(world, Mesh{{1, 2, 1}}, &topology);
    PreflightRank rank{world, topology, comms, compute, nullptr, {}};
    auto& mine = all[static_cast<std::size_t>(world.rank())];
    mine.costs = check_steps(rank, config, bytes_per_second);
    mine.findings = rank.findings;
  });
  return all;
}

TEST(StepCheck, each_rank_measures_its_operators) {
  for (const Checked& one : steps_on_two_hosts(1e9)) {
    EXPECT_GT(one.costs.operators.times().size(), 10u);
    EXPECT_GT(one.costs.constant_bytes, 0);
    ASSERT_EQ(one.findings.size(), 1u);
    EXPECT_EQ(one.findings.front().failure, "");
    EXPECT_GT(one.findings.front().value, 0);
  }
}

// A model of some 70,000 parameters in fp32: gathers, and the sum of gradients.
TEST(StepCheck, where_steps_would_take_minutes_for_the_network_they_are_a_fault_of_all_hosts) {
  const auto all = steps_on_two_hosts(5e3);
  EXPECT_TRUE(all[0].costs.operators.times().empty());
  ASSERT_EQ(all[0].findings.size(), 1u);
  const Finding& fault = all[0].findings.front();
  expect_contains(fault.failure, "for other hosts, which send 5.00 kB/s");
  EXPECT_EQ(fault.whose, "hosts n1, n2");
  EXPECT_TRUE(all[1].findings.empty());
}

}  // namespace lockstep::testing::step_check_test
