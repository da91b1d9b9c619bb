// Training with fp8 matmuls. tests/kernels and tests/model check their values; these tests check
// their effect on a run.
#include <gtest/gtest.h>

#include "tests/train/training_rig.h"

namespace lockstep::testing::fp8_test {

TrainingConfig config_of(Fp8Matmuls fp8, Family family = Family::llama3) {
  auto config = tiny(DType::bf16);
  config.model = small_model(family, 128, 4);
  config.model.mlp_width = 128;  // so that scales of blocks fit too
  if (family != Family::gpt2) config.model.kv_heads = 2;
  config.sequence_length = 64;
  config.fp8 = fp8;
  config.fp8_gradients = fp8 == Fp8Matmuls::block ? DType::fp8_e4m3 : DType::fp8_e5m2;
  return config;
}

class Fp8Training : public ::testing::TestWithParam<std::tuple<Fp8Matmuls, Family>> {
 protected:
  static TrainingConfig config() {
    return config_of(std::get<Fp8Matmuls>(GetParam()), std::get<Family>(GetParam()));
  }
};
const auto kTypes = ::testing::Values(Fp8Matmuls::tensor, Fp8Matmuls::block);
const auto kName = [](const auto& p) {
  return str(std::get<Fp8Matmuls>(p.param) == Fp8Matmuls::tensor ? "tensor_" : "block_",
             name(std::get<Family>(p.param)));
};
// Under --full only: GPT-2 has their biases, and Qwen3 all their other parts.
INSTANTIATE_TEST_SUITE_P(full_others, Fp8Training,
                         ::testing::Combine(kTypes,
                                            ::testing::Values(Family::llama3, Family::qwen2)),
                         kName);
INSTANTIATE_TEST_SUITE_P(some, Fp8Training,
                         ::testing::Combine(kTypes, ::testing::Values(Family::gpt2, Family::qwen3)),
                         kName);

double cosine(const Doubles& a, const Doubles& b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

// An E5M2 value is off by about 5% (at most 1/8), an E4M3 value by half of that. Each matmul of
// backward adds such noise to its result. After the dozen matmuls of two layers the noise is up to
// a sixth of the gradient, which turns it by ten degrees.
TEST_P(Fp8Training, gradients_point_in_the_direction_of_bf16_gradients) {
  auto bf16 = config();
  bf16.fp8 = Fp8Matmuls::off;
  Rig exact(bf16), rounded(config());
  const auto a = exact.step(1, 0), b = rounded.step(1, 0);
  EXPECT_NEAR(b.loss, a.loss, 2e-2);
  EXPECT_NEAR(b.grad_norm, a.grad_norm, 0.05 * a.grad_norm);
  EXPECT_NE(b.grad_norm, a.grad_norm) << "nothing was rounded to fp8";
  EXPECT_GT(cosine(rounded.gradients(), exact.gradients()), 0.985);
}

TEST_P(Fp8Training, a_single_batch_is_memorized) {
  Rig rig(config());
  double last = rig.step(1, 3e-3).loss;
  for (int i = 2; i <= 60; ++i)
    last = rig.step(i, 3e-3).loss;
  EXPECT_LT(last, 0.1);
  // Evaluation multiplies by the weights of the last update, not by those of the step before.
  rig.training.evaluate(rig.batch(0, 2));
  EXPECT_LT(rig.training.evaluated().mean(), 0.1);
}

TEST_P(Fp8Training, recompute_is_bitwise_exact) {
  expect_recompute_is_exact(config(), 2);
}

TEST_P(Fp8Training, memory_use_equals_the_measured_bytes) {
  expect_the_measured_bytes_are_used(config());
}

TEST(Fp8TrainingOnce, a_step_allocates_nothing_from_the_heap) {
  for (const auto fp8 : {Fp8Matmuls::tensor, Fp8Matmuls::block})
    expect_a_step_allocates_nothing_from_the_heap(config_of(fp8));
}

// Prompts of any length and single tokens are computed in bf16, within the measured memory.
TEST(Fp8TrainingOnce, text_is_sampled_in_bf16) {
  for (const auto fp8 : {Fp8Matmuls::tensor, Fp8Matmuls::block}) {
    auto config = config_of(fp8);
    config.sample_tokens = 40;
    Rig rig(config);
    config.fp8 = Fp8Matmuls::off;
    Rig plain(config);
    const std::vector<std::int32_t> prompt(16, 3);
    const Sampling sampling{.temperature = 0.8f, .seed = 4};
    EXPECT_EQ(rig.training.sample(prompt, 20, sampling),
              plain.training.sample(prompt, 20, sampling));
  }
}

std::vector<std::byte> copies(Rig& rig) {
  return fp8_copies(rig.training.params(), rig.bench.stream);
}

// The optimizer finds the largest magnitudes while it writes; refresh_weights() reads all weights
// to find them.
TEST_P(Fp8Training, copies_match_the_weights_after_applied_and_skipped_updates) {
  auto config = Fp8Training::config();
  for (const bool stochastic : {false, true}) {
    config.stochastic_rounding = stochastic;
    config.moments = stochastic ? DType::bf16 : DType::fp32;
    Rig rig(config);
    const auto expect_fresh = [&](const char* after) {
      const auto found = copies(rig);
      EXPECT_FALSE(found.empty());
      rig.training.params().refresh_weights(rig.bench.stream);
      EXPECT_TRUE(copies(rig) == found) << "after " << after;
    };
    expect_fresh("initialisation");
    const auto before = copies(rig);
    for (int i = 1; i <= 3; ++i)
      EXPECT_TRUE(rig.step(i, 1e-2).applied);
    EXPECT_FALSE(copies(rig) == before);
    EXPECT_TRUE(rig.step(4, 1e-2).applied);
    expect_fresh("an update");
    const auto updated = copies(rig);
    const auto targets = rig.bench.copy(rig.targets);
    std::fill_n(rig.targets.as<std::int32_t>(), rig.targets.elements(), -1);
    EXPECT_FALSE(rig.step(5, 1e-2).applied);
    EXPECT_TRUE(copies(rig) == updated) << "a skipped update changed them";
    std::copy_n(targets.as<std::int32_t>(), targets.elements(), rig.targets.as<std::int32_t>());
    EXPECT_TRUE(rig.step(6, 1e-2).applied);
    expect_fresh("an update behind a skipped one");
  }
}

TEST(Fp8TrainingOnce, a_weight_that_is_not_finite_skips_the_update) {
  Rig rig(config_of(Fp8Matmuls::tensor));
  rig.step(1, 1e-2);
  auto& shard = rig.training.params().shards()[1];
  shard.master.as<float>()[300] = std::numeric_limits<float>::quiet_NaN();
  rig.training.params().refresh_weights(rig.bench.stream);
  const auto before = rig.weights();
  EXPECT_FALSE(rig.step(2, 1e-2).applied);
  const auto after = rig.weights();
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(after[i] == before[i] || std::isnan(before[i])) << i;
}

}  // namespace lockstep::testing::fp8_test
