// A run that was saved on one layout resumes on another.
#include <gtest/gtest.h>

#include "checkpoint/compare.h"
#include "tests/data/shards.h"
#include "tests/train/layout_rig.h"

namespace lockstep::testing::reshape_test {

namespace fs = std::filesystem;

class Reshaped : public LayoutTest<::testing::Test> {
 protected:
  using Places = std::vector<std::size_t>;

  // Saves on one layout and resumes on others; `place` and `others` are indices of kLayouts.
  // `whole`: the outcome of one rank that was never saved.
  void expect_goes_on(const TrainingConfig& config, std::size_t place, const Places& others,
                      const Outcome& whole) {
    const TemporaryDirectory saved(fast_directory());
    const auto save = [&](LayoutRank& rank) { rank.save(saved.path()); };
    train_on(kLayouts[place], config, kBefore, {.behind = save, .dataset = dataset_});
    for (const auto other : others) {
      SCOPED_TRACE(str(name(config.model.family), " from ", name_of(kLayouts[place]), " to ",
                       name_of(kLayouts[other])));
      const TemporaryDirectory again(fast_directory());
      const auto load = [&](LayoutRank& rank) {
        rank.load(saved.path());
        rank.save(again.path());
      };
      const auto found =
          train_on(kLayouts[other], config, kBehind, {.before = load, .dataset = dataset_});
      const auto difference = compare_checkpoints(checkpoint_path(saved.path(), kBefore),
                                                  checkpoint_path(again.path(), kBefore));
      EXPECT_TRUE(difference.empty());
      EXPECT_GT(difference.same, 0);
      for (std::size_t i = 0; i < kBehind; ++i) {
        const auto step = kBefore + i;
        EXPECT_EQ(found.consumed[i], whole.consumed[step]) << "step " << step + 1;
        EXPECT_NEAR(found.losses[i], whole.losses[step], 1e-5 * whole.losses[step])
            << "step " << step + 1;
      }
      ++pairs_;
    }
  }

  void SetUp() override {
    LayoutTest<::testing::Test>::SetUp();
    write_dataset(dataset_, random_documents(1601), 997);
  }
  TrainingConfig config_of(Family family) const {
    auto config = layout_config(family);
    config.model.vocabulary = 257;  // of the dataset; tensor ranks pad it
    return config;
  }
  Outcome whole(const TrainingConfig& config) const {
    return train_on({}, config, kBefore + kBehind, {.dataset = dataset_});
  }

  static constexpr int kBefore = 2, kBehind = 3;
  const std::vector<Layout> kLayouts{
      {},
      {Mesh{.replicate = 2}},
      {Mesh{.shard = 2}},
      {Mesh{.tensor = 2}},
      {Mesh{.shard = 3}, Sharding::optimizer},
      {Mesh{.shard = 4}, Sharding::gradients},
      {Mesh{.replicate = 2, .shard = 2}, Sharding::optimizer},
      {Mesh{.shard = 2, .tensor = 2}},
      {Mesh{.replicate = 2, .tensor = 4}},
      {Mesh{.tensor = 8}},
      {Mesh{.shard = 8}},
      {Mesh{.replicate = 2, .shard = 2, .tensor = 2}, Sharding::gradients}};
  TemporaryDirectory directory_;
  const std::string dataset_ = (directory_ / "dataset").string();
  int pairs_ = 0;
};

TEST_F(Reshaped, runs_resume_on_30_pairs_of_layouts) {
  constexpr std::array kFamilies{Family::gpt2, Family::llama3};
  const auto n = kLayouts.size();
  for (std::size_t k = 0; k < 2; ++k) {
    const auto config = config_of(kFamilies[k]);
    const auto one = whole(config);
    for (std::size_t place = k; place < n; place += 2) {
      Places others{(place + 1) % n, (place + 5) % n};
      if (k == 0) others.push_back((place + 8) % n);
      expect_goes_on(config, place, others, one);
    }
  }
  std::printf("%d pairs\n", pairs_);
}

TEST_F(Reshaped, full_runs_resume_on_all_pairs_of_layouts) {
  for (const auto family : {Family::gpt2, Family::llama3}) {
    const auto config = config_of(family);
    const auto one = whole(config);
    for (std::size_t place = 0; place < kLayouts.size(); ++place) {
      Places others;
      for (std::size_t other = 0; other < kLayouts.size(); ++other)
        if (other != place) others.push_back(other);
      expect_goes_on(config, place, others, one);
    }
  }
  std::printf("%d pairs\n", pairs_);
}

}  // namespace lockstep::testing::reshape_test
