#include "train/plan/cluster_topology.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/train/plan/cluster_rig.h"

namespace lockstep::testing {
namespace {

// Where nodes and NVLink domains are of the same size, smaller and larger: each tensor group lies
// in a domain, and domains keep their size when ranks take their places.
TEST(ClusterTopology, domains_are_those_of_nvlink_and_not_nodes) {
  for (const int domain : {2, 4, 16})
    for (const int tensor : {1, 2}) {
      Cluster cluster = h100s(12);
      cluster.ranks_per_node = 4;
      cluster.hardware.domain_ranks = domain;
      const Mesh mesh{{1, 48 / tensor, tensor}};
      const auto topology = placed_in(mesh, launched_on(cluster, 48));
      EXPECT_EQ(topology.domains.size(), static_cast<std::size_t>(48 / domain)) << domain;
      for (int rank = 0; rank < 48; ++rank)
        for (const int peer : mesh.peers(Axis::tensor, rank))
          EXPECT_EQ(topology.domain_of[static_cast<std::size_t>(peer)],
                    topology.domain_of[static_cast<std::size_t>(rank)]);
    }
}

TEST(ClusterTopology, more_ranks_than_there_are_say_how_many_nodes_they_take) {
  try {
    launched_on(h100s(2), 17);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "the layout is of 17 ranks, and h100s has 16: 2 nodes of 8; it takes 3 nodes");
  }
}

}  // namespace
}  // namespace lockstep::testing
