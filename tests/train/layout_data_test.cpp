// On every layout, ranks together read every token of a step once.
#include <gtest/gtest.h>

#include "tests/data/shards.h"
#include "tests/train/layout_rig.h"

namespace lockstep::testing::layout_data_test {

// A step has ten sequences. Most of the layouts do not divide them, so some ranks have masked
// sequences. The dataset has seven sequences and is read several times.
TEST(LayoutData, is_consumed_once_in_each_step_by_all_ranks_together) {
  const TemporaryDirectory directory;
  auto config = layout_config(Family::llama3);
  config.model.vocabulary = 257;
  config.global_batch_sequences = 10;
  constexpr int kSteps = 4;
  write_dataset(directory / "d", random_documents(7 * config.sequence_length + 1), 97);
  const auto train = [&](const Layout& layout, std::int64_t sequences_at_once) {
    config.micro_batch_sequences = sequences_at_once;
    return train_on(layout, config, kSteps, {.dataset = (directory / "d").string()});
  };
  const auto one = train({}, 5);
  for (const auto& consumed : one.consumed)
    EXPECT_EQ(consumed.sequences(), config.global_batch_sequences);
  for (const auto& [layout, sequences] :
       {std::pair{Layout{Mesh{.shard = 2}}, 1}, std::pair{Layout{Mesh{.shard = 4}}, 1},
        std::pair{Layout{Mesh{.replicate = 2, .shard = 2, .tensor = 2}, Sharding::gradients}, 1},
        std::pair{Layout{Mesh{.shard = 3}, Sharding::optimizer}, 2},
        std::pair{Layout{Mesh{.shard = 8}}, 2}, std::pair{Layout{Mesh{.tensor = 4}}, 5},
        std::pair{Layout{Mesh{.replicate = 3, .tensor = 2}}, 1}}) {
    const auto many = train(layout, sequences);
    EXPECT_EQ(many.consumed, one.consumed) << name_of(layout);
    for (std::size_t i = 0; i < kSteps; ++i)
      EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5 * one.losses[i])
          << name_of(layout) << " step " << i + 1;
  }
}

}  // namespace lockstep::testing::layout_data_test
