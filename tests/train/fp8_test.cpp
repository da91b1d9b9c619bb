// Training with products of fp8. What the products compute is tests/kernels' and tests/model's;
// here is what they do to a run.
#include <gtest/gtest.h>

#include "tests/allocations.h"
#include "tests/train/training_rig.h"

namespace lockstep::testing::fp8_test {

TrainingConfig config_of(Fp8Products fp8, Family family = Family::llama3) {
  auto config = tiny(DType::bf16);
  auto& m = config.model;
  const auto sizes = m;
  m = family_defaults(family);
  m.layers = sizes.layers;
  m.vocabulary = sizes.vocabulary;
  m.max_positions = sizes.max_positions;
  m.rope_scaling.reset();
  m.width = m.mlp_width = 128;  // so that scales of blocks fit too
  m.heads = 4;
  m.kv_heads = family == Family::gpt2 ? 4 : 2;
  m.head_size = 32;
  config.sequence_length = 64;
  config.fp8 = fp8;
  config.fp8_gradients = fp8 == Fp8Products::block ? DType::fp8_e4m3 : DType::fp8_e5m2;
  return config;
}

class Fp8Training : public ::testing::TestWithParam<std::tuple<Fp8Products, Family>> {
 protected:
  static TrainingConfig config() {
    return config_of(std::get<Fp8Products>(GetParam()), std::get<Family>(GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(
    all, Fp8Training,
    ::testing::Combine(::testing::Values(Fp8Products::tensor, Fp8Products::block),
                       ::testing::Values(Family::gpt2, Family::llama3, Family::qwen2,
                                         Family::qwen3)),
    [](const auto& p) {
      return str(std::get<Fp8Products>(p.param) == Fp8Products::tensor ? "tensor_" : "block_",
                 name(std::get<Family>(p.param)));
    });

double cosine(const Doubles& a, const Doubles& b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

// A code of E5M2 is off by some 5% (at most 1/8), one of E4M3 by half of that; each product of
// backward adds such noise to what it hands on. After the dozen of two layers that is up to a sixth
// of the gradient, which turns it by ten degrees.
TEST_P(Fp8Training, gradients_point_where_those_of_bf16_do) {
  auto bf16 = config();
  bf16.fp8 = Fp8Products::off;
  Rig exact(bf16), rounded(config());
  const auto a = exact.step(1, 0), b = rounded.step(1, 0);
  EXPECT_NEAR(b.loss, a.loss, 2e-2);
  EXPECT_NEAR(b.grad_norm, a.grad_norm, 0.05 * a.grad_norm);
  EXPECT_NE(b.grad_norm, a.grad_norm) << "nothing was rounded to fp8";
  EXPECT_GT(cosine(rounded.gradients(), exact.gradients()), 0.985);
}

TEST_P(Fp8Training, one_batch_is_learned_by_heart) {
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
  auto config = Fp8Training::config();
  Doubles expected;
  for (const auto recompute : {Recompute::none, Recompute::cheap, Recompute::block}) {
    config.recompute = recompute;
    Rig rig(config);
    for (int i = 1; i <= 2; ++i)
      rig.step(i, 1e-2);
    if (recompute == Recompute::none) expected = rig.weights();
    EXPECT_EQ(rig.weights(), expected) << static_cast<int>(recompute);
  }
}

TEST_P(Fp8Training, the_measured_bytes_are_the_bytes_used) {
  const auto measured = measure_training(config(), Device{}, 2);
  Stream stream(Device{}, "test", Stream::Mode::immediate, 2);
  Arenas arenas(Device{}, measured);
  Training training(config(), stream, arenas);
  training.initialize();
  Rig source(config());  // for its batch
  training.begin_step(1, 1e-3);
  training.micro_step(source.batch(0, 2));
  training.finish_step();
  training.evaluate(source.batch(0, 2));
  EXPECT_EQ(arenas.peak().device, measured.device);
}

TEST(Fp8TrainingOnce, a_step_allocates_nothing_from_the_heap) {
  for (const auto fp8 : {Fp8Products::tensor, Fp8Products::block}) {
    Rig rig(config_of(fp8));
    const auto batch = rig.batch(0, 2);
    const auto step = [&](std::int64_t number) {
      rig.training.begin_step(number, 1e-3);
      rig.training.micro_step(batch);
      rig.training.finish_step();
      return rig.training.numbers(number).applied;
    };
    EXPECT_TRUE(step(1));
    const auto before = allocations();
    EXPECT_TRUE(step(2));
    EXPECT_EQ(allocations() - before, 0);
  }
}

// Samples of any length: prompts and single tokens are computed in bf16, in the memory measured.
TEST(Fp8TrainingOnce, text_is_sampled_in_bf16) {
  for (const auto fp8 : {Fp8Products::tensor, Fp8Products::block}) {
    auto config = config_of(fp8);
    config.sample_tokens = 40;
    Rig rig(config);
    config.fp8 = Fp8Products::off;
    Rig plain(config);
    const std::vector<std::int32_t> prompt(16, 3);
    const Sampling sampling{.temperature = 0.8f, .seed = 4};
    EXPECT_EQ(rig.training.sample(prompt, 20, sampling),
              plain.training.sample(prompt, 20, sampling));
  }
}

// All fp8 weights and their scales.
std::vector<std::byte> fp8_copies(Rig& rig) {
  auto& params = rig.training.params();
  std::vector<std::byte> bytes;
  for (int unit = 0; unit < params.units(); ++unit) {
    const auto use = params.use(unit, rig.bench.stream);
    for (int i = 0; i < static_cast<int>(params.layout().specs(unit).size()); ++i) {
      const auto q = use.quantized({unit, i});
      if (!q.weight) continue;
      for (const ConstTensor& t :
           {q.weight.q, q.weight.scales, q.transposed.q, q.transposed.scales})
        bytes.insert(bytes.end(), t.data, t.data + t.bytes());
    }
  }
  return bytes;
}

// The optimizer finds largest magnitudes as it writes; refresh_weights() reads all weights for
// them.
TEST_P(Fp8Training, copies_are_those_of_the_weights_after_updates_and_skipped_ones) {
  auto config = Fp8Training::config();
  for (const bool stochastic : {false, true}) {
    config.stochastic_rounding = stochastic;
    config.moments = stochastic ? DType::bf16 : DType::fp32;
    Rig rig(config);
    const auto expect_fresh = [&](const char* after) {
      const auto copies = fp8_copies(rig);
      EXPECT_FALSE(copies.empty());
      rig.training.params().refresh_weights(rig.bench.stream);
      EXPECT_TRUE(fp8_copies(rig) == copies) << "after " << after;
    };
    expect_fresh("initialisation");
    const auto before = fp8_copies(rig);
    for (int i = 1; i <= 3; ++i)
      EXPECT_TRUE(rig.step(i, 1e-2).applied);
    EXPECT_FALSE(fp8_copies(rig) == before);
    EXPECT_TRUE(rig.step(4, 1e-2).applied);
    expect_fresh("an update");
    const auto updated = fp8_copies(rig);
    const auto targets = rig.bench.copy(rig.targets);
    std::fill_n(rig.targets.as<std::int32_t>(), rig.targets.elements(), -1);
    EXPECT_FALSE(rig.step(5, 1e-2).applied);
    EXPECT_TRUE(fp8_copies(rig) == updated) << "a skipped update changed them";
    std::copy_n(targets.as<std::int32_t>(), targets.elements(), rig.targets.as<std::int32_t>());
    EXPECT_TRUE(rig.step(6, 1e-2).applied);
    expect_fresh("an update behind a skipped one");
  }
}

TEST(Fp8TrainingOnce, a_weight_that_is_not_finite_skips_the_update) {
  Rig rig(config_of(Fp8Products::tensor));
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
