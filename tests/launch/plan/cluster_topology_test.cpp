#include "launch/plan/cluster_topology.h"

#include <gtest/gtest.h>

#include "tests/launch/plan/cluster_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::cluster_topology_test {

// NVLink domains are smaller than nodes, equal to them, or larger. Each tensor group is inside a
// domain, and placement keeps the sizes of domains.
TEST(ClusterTopology, domains_are_nvlink_domains_and_not_nodes) {
  for (const int domain : {2, 4, 16})
    for (const int tensor : {1, 2}) {
      Cluster cluster = h100s(12);
      cluster.ranks_per_node = 4;
      cluster.hardware.domain_ranks = domain;
      const Mesh mesh{.shard = 48 / tensor, .tensor = tensor};
      const auto topology = placed_in(mesh, launched_on(cluster, 48));
      EXPECT_EQ(topology.domains.size(), static_cast<std::size_t>(48 / domain)) << domain;
      for (int rank = 0; rank < 48; ++rank)
        for (const int peer : mesh.peers(Axis::tensor, rank))
          EXPECT_EQ(topology.domain_of[static_cast<std::size_t>(peer)],
                    topology.domain_of[static_cast<std::size_t>(rank)]);
    }
}

// Bridges connect pairs of GPUs, and each host has three GPUs.
TEST(ClusterTopology, a_domain_does_not_extend_beyond_its_host) {
  Cluster cluster = h100s(2);
  cluster.ranks_per_node = 3;
  cluster.hardware.domain_ranks = 2;
  const auto launched = launched_on(cluster, 6);
  EXPECT_EQ(launched.domain_of, (std::vector<int>{0, 0, 1, 2, 2, 3}));
  const Mesh pairs{.shard = 3, .tensor = 2};
  expect_refusal<ConfigError>("launch/cluster_topology", "a domain of one",
                              {"layout.tensor = 2", "NVLink domain 1", "1 GPU"},
                              [&] { placed_in(pairs, launched); });
  EXPECT_EQ(placed_in(pairs, launched, TensorAcross::allowed).domain_of.size(), 6u);
  Cluster two = processors(3);
  two.nodes = 2;
  EXPECT_EQ(launched_on(two, 6).domains[1].name, "node 1");
}

TEST(ClusterTopology, too_many_ranks_are_an_error_with_the_number_of_nodes_needed) {
  expect_refusal<ConfigError>("launch/cluster_topology", "17 ranks",
                              {"17", "h100s", "16", "3 nodes"}, [] { launched_on(h100s(2), 17); });
}

}  // namespace lockstep::testing::cluster_topology_test
