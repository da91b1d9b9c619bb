#include "launch/preflight/link_checks.h"

#include <cmath>

#include "dist/topology/topology_placement.h"
#include "tests/launch/preflight/preflight_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::link_checks_test {

TEST(LinkChecks, each_host_sends_for_any_number_of_hosts) {
  for (const std::vector<int>& ranks :
       {std::vector<int>{1, 1, 1}, {2, 1}, {1, 1, 1, 1}, {1, 1, 1, 1, 1}}) {
    const Topology topology = pretend_hosts(ranks);
    const auto size = static_cast<int>(topology.places.size());
    const auto found = on_ranks(topology, Mesh{.shard = size}, check_hosts);
    for (std::size_t r = 0; r < found.size(); ++r) {
      // The second rank of the first of two hosts has no partner on the other.
      const bool is_lonely = ranks.size() == 2 && r == 1;
      ASSERT_EQ(found[r].size(), ranks.size() > 2 ? 2u : 1u) << r;
      for (const Finding& one : found[r])
        EXPECT_EQ(is_lonely ? std::isnan(one.value) : one.value > 0, true) << one.value;
    }
    EXPECT_EQ(ranks_without_partners(topology),
              ranks.size() == 2 ? std::vector{1} : std::vector<int>());
    if (ranks.size() == 2) {
      EXPECT_EQ(found[0].front().whose, "host n1, rank 0 (to host n2)");
      EXPECT_EQ(found[2].front().whose, "host n2, rank 2 (to host n1)");
      EXPECT_EQ(found[2].front().key, "n2/0 (to host n1)") << "whatever the rank's number";
    }
  }
}

// The first of three hosts sends slowly.
TEST(LinkChecks, the_rate_of_a_rank_is_the_best_that_its_partners_received) {
  const std::vector<std::vector<Received>> received{
      {{1, 90}, {2, 80}}, {{0, 20}, {2, 85}}, {{0, 10}, {1, 95}}};
  std::vector<PairRates> rates(3);
  run_thread_ranks(3, [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    rates[rank] = pair_rates(world, received[rank]);
  });
  EXPECT_EQ(rates[0].sent, 20);
  EXPECT_EQ(rates[1].sent, 95);
  EXPECT_EQ(rates[2].sent, 85);
  EXPECT_EQ(rates[0].received, 90);
  EXPECT_EQ(rates[1].received, 85);
  EXPECT_EQ(rates[2].received, 95);
  EXPECT_EQ(rates[0].partners, (std::vector<int>{1, 2}));
}

// Each of two hosts has a shard group. The links of the second one are slow; rank 0 is in the
// first.
TEST(LinkChecks, the_slowest_group_is_found_also_without_rank_0) {
  const auto link = [](int domains, double rate, double first) {
    return LinkTime{.kind = Collective::all_gather,
                    .ranks = 2,
                    .domains = domains,
                    .times = {{1000, first}},
                    .bytes_per_second = rate};
  };
  const LinkTimes here({link(1, 370e9, 1e-6), link(2, 46e9, 4e-6)}), there({link(1, 320e9, 3e-6)});
  std::vector<SlowestLink> slowest;
  run_thread_ranks(4, [&](World& world) {
    auto found = slowest_of_ranks(world, world.rank() < 2 ? here : there);
    if (world.rank() == 3) slowest = std::move(found);
  });
  ASSERT_EQ(slowest.size(), 2u);
  EXPECT_EQ(slowest[0].domains, 1);
  EXPECT_EQ(slowest[0].bytes_per_second, 320e9);
  EXPECT_EQ(slowest[0].rank, 2);
  EXPECT_EQ(slowest[0].latency_seconds, 3e-6);
  EXPECT_EQ(slowest[1].bytes_per_second, 46e9);
  EXPECT_EQ(slowest[1].rank, 0);
}

// Some ranks of a group have measured a similar group, others have not: all measure it.
TEST(LinkChecks, all_groups_on_hosts_of_unequal_size_are_measured) {
  const Mesh mesh{.replicate = 2, .shard = 4};  // shard groups on the first and on both
  const Topology launched = pretend_hosts({6, 2});
  const Topology topology = renumbered(launched, placement(mesh, launched));
  std::vector<std::size_t> measured(8);
  on_ranks(topology, mesh, [&](PreflightRank& rank) {
    const auto links = LinkTimes::measure(rank.comms, *rank.transfers, rank.compute, &topology);
    measured[static_cast<std::size_t>(rank.world.rank())] = links.links().size();
  });
  EXPECT_NE(measured[0], measured[4]) << "they see other groups";
  for (const auto count : measured)
    EXPECT_GT(count, 0u);
}

// Findings of the first of two ranks, on a host each, that both call `act`.
std::vector<Finding> found_on_two(const Hardware* known,
                                  const std::function<void(PreflightRank&)>& act) {
  return on_ranks(pretend_hosts({1, 1}), Mesh{.shard = 2}, act, known).front();
}

// docs/preflight.md has these limits of an H100: 0.94 of 0.9 of its NIC of 46 GB/s.
TEST(LinkChecks, a_known_gpu_has_limits) {
  const auto found = found_on_two(find_hardware("NVIDIA H100 80GB HBM3"), [](PreflightRank& rank) {
    check_hosts(rank);
    check_collectives(rank, 21e6);  // just fast enough
  });
  const auto* sends = find(found, "sends to other hosts");
  ASSERT_NE(sends, nullptr);
  EXPECT_NEAR(sends->limit, 0.94 * 0.9 * 46e9, 1);
  const auto* gather = find(found, "all_gather of 2 ranks in 2 domains, beside compute");
  ASSERT_NE(gather, nullptr);
  EXPECT_NEAR(gather->limit, 0.94 * 0.9 * 46e9, 1e9);
  EXPECT_EQ(gather->whose, "hosts n1, n2");
  const auto* latency = find(found, "all_gather of 2 ranks in 2 domains, beside compute, latency");
  ASSERT_NE(latency, nullptr);
  EXPECT_TRUE(std::isnan(latency->limit));
  EXPECT_EQ(latency->tolerance, 3);
  EXPECT_GT(latency->value, 0);
  EXPECT_EQ(latency->of.substr(latency->of.find("replicate")), "replicate 1 x shard 2 x tensor 1");
  EXPECT_TRUE(std::isnan(find(found, "all_to_all of 2 ranks in 2 domains")->limit));
}

TEST(LinkChecks, hosts_with_a_slow_connection_are_a_fault) {
  std::size_t measured = 1;
  const auto slow = found_on_two(nullptr, [&](PreflightRank& rank) {
    const auto links = check_collectives(rank, 19e6);
    if (rank.world.rank() == 0) measured = links.links().size();
  });
  EXPECT_EQ(measured, 0u);
  ASSERT_EQ(slow.size(), 1u);
  expect_contains(slow.front().failure, "19.0 MB/s");
  expect_wording("launch/preflight_checks", "hosts that are joined slowly", slow.front().failure);
  EXPECT_EQ(slow.front().whose, "hosts n1, n2");
}

}  // namespace lockstep::testing::link_checks_test
