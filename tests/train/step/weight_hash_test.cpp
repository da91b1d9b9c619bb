#include "train/step/weight_hash.h"

#include <gtest/gtest.h>

#include "tests/train/layout_rig.h"
#include "train/interop/huggingface.h"
#include "train/interop/model_source.h"

namespace lockstep::testing::weight_hash_test {

using Groups = std::vector<std::vector<int>>;

WeightHash::Result hash_of(LayoutRank& rank) {
  auto& hash = rank.training().weight_hash();
  hash.enqueue(rank.stream());
  return hash.read();
}

// The hash, which must be equal on all ranks.
WeightHash::Result hash_on(const Layout& layout, const TrainingConfig& config, int steps,
                           Around around = {}) {
  std::mutex mutex;
  std::vector<WeightHash::Result> results;
  const auto change = around.behind;
  around.behind = [&](LayoutRank& rank) {
    change(rank);
    const auto result = hash_of(rank);
    const std::lock_guard lock(mutex);
    results.push_back(result);
  };
  train_on(layout, config, steps, around);
  for (const auto& result : results) {
    EXPECT_EQ(result.hash, results.front().hash);
    EXPECT_EQ(result.unequal, results.front().unequal);
  }
  return results.front();
}

struct WeightHashes : LayoutTest<::testing::Test> {};

TEST_F(WeightHashes, equal_those_of_one_rank_on_every_layout) {
  for (const Family family : {Family::gpt2, Family::llama3}) {
    const auto config = layout_config(family);
    const auto one = hash_on({}, config, 0);
    EXPECT_NE(one.hash, 0u);
    for (const auto& layout : all_layouts()) {
      const auto many = hash_on(layout, config, 0);
      EXPECT_EQ(many.hash, one.hash) << name_of(layout);
      EXPECT_EQ(many.unequal, Groups{}) << name_of(layout);
    }
  }
}

TEST_F(WeightHashes, of_imported_weights_equal_those_of_one_rank_on_every_layout) {
  for (const Family family : {Family::gpt2, Family::llama3})
    for (const bool masters : {true, false}) {
      const TemporaryDirectory directory;
      auto config = layout_config(family);
      config.compute = masters ? DType::fp32 : DType::bf16;
      config.stochastic_rounding = !masters;
      const auto write = [&](LayoutRank& rank) {
        export_huggingface(directory / "model", config.model,
                           weight_slices(rank.training().params()), {.dtype = DType::fp32});
      };
      const auto expected = hash_on({}, config, 0, {.behind = write}).hash;
      const auto load = [&](LayoutRank& rank) {
        load_weights(find_model(directory / "model"), rank.training().params(), rank.stream());
      };
      auto layouts = all_layouts();
      layouts.push_back({});
      for (const auto& layout : layouts) {
        const auto found = hash_on(layout, config, 0, {.before = load});
        EXPECT_EQ(found.hash, expected) << name_of(layout);
        EXPECT_EQ(found.unequal, Groups{}) << name_of(layout);
      }
    }
}

TEST_F(WeightHashes, of_replicas_are_equal_after_steps_of_every_type) {
  for (const bool masters : {true, false}) {
    auto config = layout_config(Family::llama3);
    config.compute = DType::bf16;
    config.stochastic_rounding = !masters;
    const auto before = hash_on({Mesh{.replicate = 2, .shard = 2, .tensor = 2}}, config, 0);
    const auto behind = hash_on({Mesh{.replicate = 2, .shard = 2, .tensor = 2}}, config, 3);
    EXPECT_EQ(behind.unequal, Groups{});
    EXPECT_NE(behind.hash, before.hash);
  }
}

// Flips the last bit of one element of one rank.
void flip(LayoutRank& rank, int victim, bool divided) {
  if (rank.world().rank() != victim) return;
  auto& params = rank.training().params();
  for (const auto& shard : params.shards())
    for (const auto& segment : shard.segments)
      if (segment.count > 0 && (params.layout().tensor_part(segment.id).parts > 1) == divided) {
        shard.weight.rows(segment.shard_begin, 1).data[0] ^= std::byte{1};
        return;
      }
  ADD_FAILURE() << "no such element";
}

TEST_F(WeightHashes, name_the_rank_with_different_bits) {
  const auto config = layout_config(Family::llama3);
  const auto found = [&](const Mesh& mesh, int victim, bool divided) {
    const auto damage = [&](LayoutRank& rank) { flip(rank, victim, divided); };
    return hash_on({mesh}, config, 1, {.behind = damage}).unequal;
  };
  EXPECT_EQ(found(Mesh{.replicate = 4}, 2, false), (Groups{{0, 1, 3}, {2}}));
  EXPECT_EQ(found(Mesh{.replicate = 2}, 1, false), (Groups{{0}, {1}}));
  EXPECT_EQ(found(Mesh{.replicate = 2, .shard = 2}, 1, false),
            (Groups{{1}, {3}}));  // replicas of shard 1
  EXPECT_EQ(found(Mesh{.replicate = 2, .tensor = 2}, 3, true),
            (Groups{{1}, {3}}));  // replicas of a part
  EXPECT_EQ(found(Mesh{.replicate = 2, .tensor = 2}, 3, false),
            (Groups{{0, 1, 2}, {3}}));                     // norms, which all ranks hold
  EXPECT_EQ(found(Mesh{.shard = 4}, 2, false), Groups{});  // no other rank holds this element
}

TEST(WeightHash, in_hexadecimal_has_all_digits) {
  EXPECT_EQ(hex_of(0), "0000000000000000");
  EXPECT_EQ(hex_of(0x00c0ffee12345678u), "00c0ffee12345678");
}

}  // namespace lockstep::testing::weight_hash_test
