#include "dist/topology/holders.h"

#include <gtest/gtest.h>
#include <map>
#include <set>
#include <utility>

namespace lockstep::testing::holders_test {

constexpr Mesh kMeshes[] = {{},
                            {.replicate = 3},
                            {.shard = 4},
                            {.tensor = 2},
                            {.replicate = 2, .shard = 3, .tensor = 2},
                            {.replicate = 4, .tensor = 8}};

TEST(Holders, one_rank_counts_each_element) {
  for (const Mesh& mesh : kMeshes)
    for (const bool is_divided : {false, true}) {
      std::map<std::array<int, 2>, std::set<int>> numbers;
      std::map<std::array<int, 2>, int> counting;
      for (int rank = 0; rank < mesh.world(); ++rank) {
        const auto place = place_in_state(mesh, is_divided, rank);
        const auto holders = holders_of(mesh, is_divided, rank);
        EXPECT_TRUE(numbers[place].insert(holders.number).second) << "two of one number";
        counting[place] += holders.counts() ? 1 : 0;
      }
      EXPECT_EQ(std::ssize(numbers), mesh.shard * (is_divided ? mesh.tensor : 1));
      for (const auto& [place, of_place] : numbers) {
        EXPECT_EQ(std::ssize(of_place), holders_of(mesh, is_divided, 0).count);
        EXPECT_EQ(*of_place.rbegin() + 1, std::ssize(of_place));
        EXPECT_EQ(counting[place], 1);
      }
    }
}

TEST(Holders, one_rank_counts_the_tokens_of_each_sequence) {
  for (const Mesh& mesh : kMeshes) {
    std::map<int, int> counting;
    for (int rank = 0; rank < mesh.world(); ++rank) {
      const auto place = data_place(mesh, rank);
      EXPECT_EQ(place.ranks, mesh.replicate * mesh.shard);
      counting[place.rank] += counts_tokens(mesh, rank) ? 1 : 0;
    }
    EXPECT_EQ(std::ssize(counting), mesh.replicate * mesh.shard);
    for (const auto& [place, count] : counting)
      EXPECT_EQ(count, 1) << place;
  }
}

// The layout of PyTorch's FSDP with tensor parallelism: ranks 0 and 1 share matrices.
TEST(Holders, of_two_copies_of_two_shards_of_two_parts) {
  const Mesh mesh{.replicate = 2, .shard = 2, .tensor = 2};
  EXPECT_EQ(place_in_state(mesh, true, 3), (std::array{1, 1}));
  EXPECT_EQ(place_in_state(mesh, false, 3), (std::array{1, 0}));
  EXPECT_EQ(place_in_state(mesh, true, 7), place_in_state(mesh, true, 3));
  EXPECT_EQ(holders_of(mesh, true, 7).number, 1);
  EXPECT_EQ(holders_of(mesh, false, 7).number, 3);
  EXPECT_EQ(data_place(mesh, 5).rank, 2);
}

}  // namespace lockstep::testing::holders_test
