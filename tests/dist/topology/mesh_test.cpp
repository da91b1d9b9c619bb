#include "dist/topology/mesh.h"

#include <gtest/gtest.h>
#include <set>

namespace lockstep::testing::mesh_test {

constexpr Axis kAllAxes[] = {Axis::replicate, Axis::shard, Axis::tensor};

TEST(Mesh, tensor_ranks_are_neighbours_and_copies_are_farthest_apart) {
  const Mesh mesh{.replicate = 2, .shard = 3, .tensor = 4};
  EXPECT_EQ(mesh.world(), 24);
  EXPECT_EQ(mesh.peers(Axis::tensor, 6), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(mesh.peers(Axis::shard, 6), (std::vector<int>{2, 6, 10}));
  EXPECT_EQ(mesh.peers(Axis::replicate, 6), (std::vector<int>{6, 18}));
}

TEST(Mesh, each_rank_has_unique_coordinates) {
  const Mesh mesh{.replicate = 3, .shard = 2, .tensor = 5};
  std::set<std::vector<int>> seen;
  for (int rank = 0; rank < mesh.world(); ++rank) {
    std::vector<int> where;
    for (const auto axis : kAllAxes) {
      where.push_back(mesh.coordinate(axis, rank));
      EXPECT_LT(where.back(), mesh.size(axis));
      EXPECT_EQ(mesh.peers(axis, rank)[static_cast<std::size_t>(where.back())], rank);
    }
    seen.insert(where);
  }
  EXPECT_EQ(static_cast<int>(seen.size()), mesh.world());
}

TEST(Mesh, peers_differ_along_their_axis_only) {
  const Mesh mesh{.replicate = 2, .shard = 2, .tensor = 3};
  for (const auto axis : kAllAxes)
    for (const int peer : mesh.peers(axis, 7))
      for (const auto other : kAllAxes)
        if (other != axis) {
          EXPECT_EQ(mesh.coordinate(other, peer), mesh.coordinate(other, 7));
        }
}

}  // namespace lockstep::testing::mesh_test
