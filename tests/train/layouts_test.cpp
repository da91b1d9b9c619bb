#include <gtest/gtest.h>

#include "tests/train/layout_rig.h"

namespace lockstep::testing {
namespace {

TrainingConfig config_of(Family family) {
  TrainingConfig config = tiny();
  if (family != Family::llama3) {
    config.model = family_defaults(family);
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
      ASSERT_NEAR(other[i], whole[i], tolerance * most + 1e-7 * largest)
          << what << " " << name << " " << i;
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

INSTANTIATE_TEST_SUITE_P(all, Layouts,
                         ::testing::Combine(::testing::Values(Family::gpt2, Family::llama3),
                                            ::testing::ValuesIn(all_layouts())),
                         [](const auto& c) {
                           return str(name(std::get<0>(c.param)), "_",
                                      name_of(std::get<1>(c.param)));
                         });

// What else may change beside the layout: each must leave the bits of its layout alone, or, for the
// type, be as close as bf16 is.
struct Variant {
  const char* name;
  Layout layout;
  Recompute recompute = Recompute::none;
  std::int64_t micro_batch = 1;  // of 8 sequences
  Family family = Family::llama3;
};

class LayoutVariants : public ::testing::TestWithParam<Variant> {};

TEST_P(LayoutVariants, train_as_one_rank_does) {
  const Variant& v = GetParam();
  auto config = config_of(v.family);
  config.recompute = v.recompute;
  config.micro_batch_sequences = v.micro_batch;
  const auto one = train_on({}, config, 3), many = train_on(v.layout, config, 3);
  expect_close(many.gradients, one.gradients, 1e-5, "gradient");
  for (std::size_t i = 0; i < one.losses.size(); ++i)
    EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5 * one.losses[i]) << "step " << i + 1;
  EXPECT_EQ(many.tokens, one.tokens);
}

INSTANTIATE_TEST_SUITE_P(
    all, LayoutVariants,
    ::testing::Values(
        Variant{"recompute_block", {Mesh{{1, 4, 2}}}, Recompute::block},
        Variant{"recompute_cheap", {Mesh{{2, 2, 2}}, Sharding::gradients}, Recompute::cheap},
        Variant{"one_micro_batch", {Mesh{{1, 4, 1}}}, Recompute::none, 2},
        Variant{"a_surplus_of_masked_sequences", {Mesh{{1, 3, 1}}}, Recompute::none, 1},
        Variant{
            "a_rank_without_sequences", {Mesh{{1, 8, 1}}, Sharding::gradients}, Recompute::none, 2},
        Variant{"three_copies", {Mesh{{3, 2, 1}}, Sharding::optimizer}},
        Variant{"two_domains", {Mesh{{1, 8, 1}}, Sharding::full, 4}},
        Variant{"two_domains_of_tensor_ranks", {Mesh{{1, 4, 2}}, Sharding::full, 4}},
        Variant{"copies_across_domains", {Mesh{{2, 4, 1}}, Sharding::full, 4}},
        Variant{"each_rank_a_domain", {Mesh{{2, 2, 1}}, Sharding::optimizer, 1}},
        Variant{"qwen3", {Mesh{{1, 2, 2}}}, Recompute::block, 1, Family::qwen3},
        Variant{"qwen2", {Mesh{{2, 1, 4}}}, Recompute::none, 1, Family::qwen2},
        Variant{"smollm3", {Mesh{{1, 4, 2}}}, Recompute::cheap, 1, Family::smollm3}),
    [](const auto& c) { return c.param.name; });

// In bf16 gradients travel in bf16 too, with a relative error of 2^-9 a term; losses are those of
// weights that agree to bf16.
TEST(LayoutsInBf16, train_as_one_rank_does) {
  for (const auto& [rounding, moments] :
       {std::pair{false, DType::fp32}, std::pair{true, DType::bf16}}) {
    auto config = config_of(Family::llama3);
    config.compute = DType::bf16;
    config.stochastic_rounding = rounding;
    config.moments = moments;
    const auto one = train_on({}, config, 3);
    for (const auto& layout :
         {Layout{Mesh{{1, 2, 1}}}, Layout{Mesh{{2, 2, 2}}}, Layout{Mesh{{1, 1, 4}}},
          Layout{Mesh{{1, 4, 2}}, Sharding::optimizer, 4}}) {
      const auto many = train_on(layout, config, 3);
      EXPECT_EQ(many.initial.values(), one.initial.values());
      for (std::size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(many.losses[i], one.losses[i], 2e-3 * one.losses[i]) << name_of(layout);
      expect_close(many.gradients, one.gradients, 0.05, "gradient");
      EXPECT_EQ(train_on(layout, config, 3).weights.values(), many.weights.values());
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
