#include "launch/preflight/host_pairs.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include "tests/launch/preflight/preflight_rig.h"

namespace lockstep::testing::host_pairs_test {

// Unequal numbers of ranks on hosts: 1, 3, 2, 1, 3, 2 ...
std::vector<int> uneven(int hosts) {
  std::vector<int> ranks;
  for (int h = 0; h < hosts; ++h)
    ranks.push_back(1 + 2 * h % 3);
  return ranks;
}

int place_of(const Topology& topology, int rank) {
  const auto ranks = host_ranks(topology, rank);
  return static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
}

TEST(HostPairs, partners_agree_and_no_hosts_meet_twice) {
  for (int hosts = 2; hosts <= 9; ++hosts)
    for (const bool dealt : {false, true}) {
      SCOPED_TRACE(str(hosts, " hosts", dealt ? ", dealt" : ""));
      const auto topology = pretend_hosts(uneven(hosts), dealt);
      const int ranks = static_cast<int>(topology.places.size());
      const auto of = [&](int rank) { return partners_on_hosts(topology, rank); };
      const auto rounds = of(0).size();
      EXPECT_EQ(rounds, std::min<std::size_t>(3, static_cast<std::size_t>(hosts - 1 + hosts % 2)));
      for (int rank = 0; rank < ranks; ++rank) {
        const auto mine = of(rank);
        ASSERT_EQ(mine.size(), rounds);
        std::set<std::string> met{topology.places[static_cast<std::size_t>(rank)].host};
        for (std::size_t round = 0; round < rounds; ++round) {
          if (!mine[round]) continue;
          const int other = *mine[round];
          EXPECT_EQ(of(other)[round], rank) << "round " << round;
          EXPECT_EQ(place_of(topology, other), place_of(topology, rank));
          EXPECT_TRUE(met.insert(topology.places[static_cast<std::size_t>(other)].host).second)
              << "rank " << rank << " meets rank " << other << " again";
        }
      }
    }
}

TEST(HostPairs, hosts_meet_up_to_three_others_and_at_most_one_waits_in_a_round) {
  for (int hosts = 2; hosts <= 9; ++hosts) {
    SCOPED_TRACE(str(hosts, " hosts"));
    const auto topology = pretend_hosts(std::vector<int>(static_cast<std::size_t>(hosts), 1));
    std::set<std::pair<int, int>> met;
    std::vector<int> waiting(3);  // hosts, by round
    for (int rank = 0; rank < hosts; ++rank) {
      const auto mine = partners_on_hosts(topology, rank);
      for (std::size_t round = 0; round < mine.size(); ++round)
        if (mine[round])
          met.emplace(std::minmax(rank, *mine[round]));
        else
          ++waiting[round];
    }
    const int rounds = std::min(3, hosts - 1 + hosts % 2);
    EXPECT_EQ(static_cast<int>(met.size()), rounds * (hosts / 2));
    EXPECT_TRUE(hosts > 4 || static_cast<int>(met.size()) == hosts * (hosts - 1) / 2);  // all
    for (int round = 0; round < rounds; ++round)
      EXPECT_EQ(waiting[static_cast<std::size_t>(round)], hosts % 2) << "round " << round;
  }
}

TEST(HostPairs, ranks_of_a_single_host_and_surplus_ranks_have_no_partner) {
  EXPECT_TRUE(partners_on_hosts(pretend_hosts({4}), 2).empty());
  const auto topology = pretend_hosts({2, 1});
  EXPECT_EQ(partners_on_hosts(topology, 0), std::vector{std::optional(2)});
  EXPECT_EQ(partners_on_hosts(topology, 1), std::vector<std::optional<int>>{std::nullopt});
  EXPECT_EQ(partners_on_hosts(topology, 2), std::vector{std::optional(0)});
}

}  // namespace lockstep::testing::host_pairs_test
