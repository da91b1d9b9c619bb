#include <gtest/gtest.h>

#include "tests/train/layout_rig.h"

namespace lockstep::testing {
namespace {

TrainingConfig config_of(Family family) {
  TrainingConfig config = tiny();
  if (family == Family::gpt2) {
    config.model = family_defaults(Family::gpt2);
    config.model.layers = 2;
    config.model.width = 32;
    config.model.heads = config.model.kv_heads = 8;
    config.model.head_size = 4;
    config.model.mlp_width = 64;
    config.model.vocabulary = 37;
    config.model.max_positions = 64;
  } else {
    config.model.heads = 16;
    config.model.kv_heads = 8;
    config.model.head_size = 4;
  }
  config.micro_batch_sequences = 1;
  config.global_batch_sequences = 8;
  return config;
}

void expect_close(const Assembled& found, const Assembled& expected, double tolerance,
                  const char* what) {
  ASSERT_EQ(found.values().size(), expected.values().size());
  double largest = 0;  // keys' biases have gradients of 0: what is there is rounding of others
  for (const auto& [name, whole] : expected.values())
    for (const double x : whole)
      largest = std::max(largest, std::abs(x));
  for (const auto& [name, whole] : expected.values()) {
    const auto& other = found.values().at(name);
    ASSERT_EQ(other.size(), whole.size()) << name;
    double most = 0;
    for (const double x : whole)
      most = std::max(most, std::abs(x));
    for (std::size_t i = 0; i < whole.size(); ++i)
      ASSERT_NEAR(other[i], whole[i], tolerance * most + 1e-7 * largest) << what << " " << name << " " << i;
  }
}

class Layouts : public ::testing::TestWithParam<std::tuple<Family, Layout>> {};

TEST_P(Layouts, trains_as_one_rank_does) {
  const auto& [family, layout] = GetParam();
  const auto config = config_of(family);
  constexpr int kSteps = 3;
  const auto one = train_on({}, config, kSteps), many = train_on(layout, config, kSteps);
  EXPECT_EQ(many.initial.values(), one.initial.values());
  EXPECT_EQ(many.tokens, one.tokens);
  expect_close(many.gradients, one.gradients, 1e-5, "gradient");
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5 * one.losses[i]) << "step " << i + 1;
    EXPECT_NEAR(many.norms[i], one.norms[i], 1e-5 * one.norms[i]) << "step " << i + 1;
  }
  const auto again = train_on(layout, config, kSteps);
  EXPECT_EQ(again.losses, many.losses);
  EXPECT_EQ(again.weights.values(), many.weights.values());
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts;
  for (const int replicate : {1, 2, 4, 8})
    for (const int shard : {1, 2, 4, 8})
      for (const int tensor : {1, 2, 4, 8}) {
        if (replicate * shard * tensor > 8 || replicate * shard * tensor == 1) continue;
        for (const auto sharding : {Sharding::optimizer, Sharding::gradients, Sharding::full})
          if (shard > 1 || sharding == Sharding::full)
            layouts.push_back({Mesh{{replicate, shard, tensor}}, sharding});
      }
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(all, Layouts,
                         ::testing::Combine(::testing::Values(Family::gpt2, Family::llama3),
                                            ::testing::ValuesIn(all_layouts())),
                         [](const auto& c) {
                           return str(name(std::get<0>(c.param)), "_",
                                      name_of(std::get<1>(c.param)));
                         });

}  // namespace
}  // namespace lockstep::testing
