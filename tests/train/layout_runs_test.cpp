// On every layout, a run saves, resumes, evaluates and samples.
#include <gtest/gtest.h>

#include "tests/train/layout_rig.h"

namespace lockstep::testing::layout_runs_test {

Family family_of(const Layout& layout) {
  return layout.mesh.size(Axis::replicate) > 1 ? Family::gpt2 : Family::llama3;
}

class LayoutRuns : public LayoutTestWith<Layout> {};

// Types 0, 1 and 2: fp32, bf16 with fp32 master weights, bf16 without master weights.
TrainingConfig config_of(const Layout& layout, int type) {
  auto config = layout_config(family_of(layout));
  if (type > 0) config.compute = DType::bf16;
  if (type == 2) {
    config.stochastic_rounding = true;
    config.moments = DType::bf16;
  }
  return config;
}

// The types alternate, so that each sharded mesh has each of them.
TEST_P(LayoutRuns, resume_bitwise_from_their_checkpoint) {
  const auto& [replicate, shard, tensor] = GetParam().mesh;
  const int type = (replicate + shard + tensor + static_cast<int>(GetParam().sharding) + 2) % 3;
  expect_a_resume_is_bitwise(GetParam(), config_of(GetParam(), type));
}
TEST_P(LayoutRuns, full_resume_bitwise_with_every_type) {
  for (const int type : {0, 1, 2})
    expect_a_resume_is_bitwise(GetParam(), config_of(GetParam(), type),
                               Against::an_uninterrupted_run);
}

// Losses, tokens and the next step equal those of one rank.
void expect_evaluated_as_by_one_rank(const Layout& layout, TrainingConfig config) {
  struct Seen {
    LossSum evaluated;
    std::vector<std::int32_t> likeliest, drawn;
    Training::Numbers behind;
  };
  config.model.init_std = 0.5f;  // likeliest tokens that differ
  config.sample_tokens = 24;
  const auto run = [&](const Layout& on) {
    std::vector<Seen> seen(static_cast<std::size_t>(on.mesh.world()));
    const auto see = [&](LayoutRank& rank) {
      auto& [evaluated, likeliest, drawn, behind] =
          seen[static_cast<std::size_t>(rank.world().rank())];
      evaluated = rank.evaluate(7);
      const std::vector<std::int32_t> prompt{1, 2, 3};
      likeliest = rank.training().sample(prompt, 21, {.temperature = 0});
      drawn = rank.training().sample(prompt, 21, {.seed = 3});
      behind = rank.step();
    };
    train_on(on, config, 2, {.behind = see});
    return seen;
  };
  const Seen one = run({}).front();
  ASSERT_EQ(one.likeliest.size(), 21u);
  ASSERT_NE(one.likeliest, one.drawn);
  for (const Seen& seen : run(layout)) {
    EXPECT_EQ(seen.evaluated.tokens, one.evaluated.tokens);
    EXPECT_NEAR(seen.evaluated.loss, one.evaluated.loss, 1e-5 * one.evaluated.loss);
    EXPECT_EQ(seen.likeliest, one.likeliest);
    EXPECT_EQ(seen.drawn, one.drawn);
    EXPECT_NEAR(seen.behind.loss, one.behind.loss, 1e-5 * one.behind.loss);
  }
}

TEST_P(LayoutRuns, evaluate_and_sample_as_one_rank_does) {
  expect_evaluated_as_by_one_rank(GetParam(), layout_config(family_of(GetParam())));
}
// Samples have numbers of tokens that chunks divide, and others.
TEST_P(LayoutRuns, full_evaluate_and_sample_in_chunks_as_one_rank_does) {
  if (GetParam().mesh.tensor == 1) GTEST_SKIP() << "one tensor rank has one chunk";
  auto config = layout_config(family_of(GetParam()));
  config.tensor_chunks = 2;
  expect_evaluated_as_by_one_rank(GetParam(), config);
}

INSTANTIATE_TEST_SUITE_P(all, LayoutRuns, ::testing::ValuesIn(all_layouts()),
                         [](const auto& c) { return name_of(c.param); });

}  // namespace lockstep::testing::layout_runs_test
