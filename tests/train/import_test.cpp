// Weights of files come to the ranks of every layout.
#include <gtest/gtest.h>
#include <set>

#include "tests/train/layout_rig.h"
#include "train/huggingface.h"
#include "train/model_source.h"

namespace lockstep::testing::import_test {

namespace fs = std::filesystem;

struct Import : LayoutTest<::testing::Test> {};

// The hash of what ranks hold after they loaded `path`, the same on all.
std::uint64_t loaded(const Layout& layout, const TrainingConfig& config, const fs::path& path) {
  std::mutex mutex;
  std::set<std::uint64_t> hashes;
  const auto load = [&](LayoutRank& rank) {
    load_weights(find_model(path), rank.training().params(), rank.stream());
    auto& hash = rank.training().weight_hash();
    hash.enqueue(rank.stream());
    const auto result = hash.read();
    EXPECT_TRUE(result.unequal.empty()) << name_of(layout);
    const std::lock_guard lock(mutex);
    hashes.insert(result.hash);
  };
  train_on(layout, config, 0, {.before = load});
  EXPECT_EQ(hashes.size(), 1u);
  return *hashes.begin();
}

TEST_F(Import, weights_of_hugging_face_are_those_of_one_rank_on_every_layout) {
  for (const Family family : {Family::gpt2, Family::llama3})
    for (const bool masters : {true, false}) {
      const TemporaryDirectory directory;
      auto config = layout_config(family);
      config.compute = masters ? DType::fp32 : DType::bf16;
      config.stochastic_rounding = !masters;
      std::uint64_t expected = 0;
      const auto write = [&](LayoutRank& rank) {
        const auto weights = weight_slices(rank.training().params());
        export_huggingface(directory / "model", config.model, weights, {.dtype = DType::fp32});
        rank.training().weight_hash().enqueue(rank.stream());
        expected = rank.training().weight_hash().read().hash;
      };
      train_on({}, config, 0, {.behind = write});
      EXPECT_EQ(loaded({}, config, directory / "model"), expected);
      for (const auto& layout : all_layouts())
        EXPECT_EQ(loaded(layout, config, directory / "model"), expected) << name_of(layout);
    }
}

}  // namespace lockstep::testing::import_test
