#include "train/step/rank_times.h"

#include <gtest/gtest.h>

#include "tests/train/layout_rig.h"

namespace lockstep::testing::rank_times_test {

TEST(RankTimes, each_rank_gets_the_times_of_all_ranks_in_order) {
  for (const Layout& layout :
       {Layout{}, Layout{Mesh{.replicate = 2}}, Layout{Mesh{.shard = 2, .tensor = 2}}}) {
    train_on(layout, layout_config(Family::llama3), 0, {.behind = [&](LayoutRank& rank) {
               auto& times = rank.training().rank_times();
               for (const double begin : {0.25, 8.0}) {
                 times.enqueue(rank.stream(), begin + rank.world().rank());
                 std::vector<double> expected;
                 for (int r = 0; r < rank.world().size(); ++r)
                   expected.push_back(begin + r);
                 EXPECT_EQ(times.read(), expected);
               }
             }});
  }
}

}  // namespace lockstep::testing::rank_times_test
