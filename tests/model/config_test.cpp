#include "model/config.h"

#include <cmath>
#include <gtest/gtest.h>

#include "tests/model/published.h"
#include "tests/wording.h"

namespace lockstep::testing::config_test {

TEST(ModelConfig, parameter_counts_are_those_of_the_published_models) {
  EXPECT_EQ(parameter_count(gpt2_124m()), 124'439'808);
  EXPECT_EQ(parameter_count(llama3_8b()), 8'030'261'248);
  EXPECT_EQ(parameter_count(qwen2_05b()), 494'032'768);
  EXPECT_EQ(parameter_count(qwen3_06b()), 596'049'920);
  EXPECT_EQ(parameter_count(smollm3_3b()), 3'075'098'624);
}

TEST(ModelConfig, an_untied_head_counts_its_own_matrix) {
  auto c = qwen3_06b();
  c.tied_head = false;
  EXPECT_EQ(parameter_count(c), 751'632'384);
  EXPECT_EQ(matmul_parameters(c), matmul_parameters(qwen3_06b()));
}

TEST(ModelConfig, flops_count_matmuls_the_head_and_attention_but_no_lookups) {
  // 12 layers of 12 D^2 and the head; attention 6 L D T, causal.
  const auto gpt2 = flops_per_token(gpt2_124m(), 1024);
  EXPECT_EQ(matmul_parameters(gpt2_124m()), 12LL * 12 * 768 * 768 + 50257LL * 768);
  EXPECT_DOUBLE_EQ(gpt2.causal, 6.0 * 123'532'032 + 6.0 * 12 * 768 * 1024);
  EXPECT_DOUBLE_EQ(gpt2.square, 6.0 * 123'532'032 + 12.0 * 12 * 768 * 1024);
  // The two counts differ by 7% for 124M at 1k, 12.5% for 8B at 8k, 36% at 32k.
  const auto ratio = [](const FlopsPerToken& f) { return f.square / f.causal; };
  EXPECT_NEAR(ratio(gpt2), 1.07, 0.005);
  EXPECT_NEAR(ratio(flops_per_token(llama3_8b(), 8192)), 1.125, 0.005);
  EXPECT_NEAR(ratio(flops_per_token(llama3_8b(), 32768)), 1.36, 0.01);
}

TEST(ModelConfig, every_fourth_layer_of_smollm3_has_no_rope) {
  const auto c = smollm3_3b();
  EXPECT_TRUE(c.has_rope(0) && c.has_rope(2) && c.has_rope(4));
  EXPECT_FALSE(c.has_rope(3) || c.has_rope(35));
  EXPECT_TRUE(llama3_8b().has_rope(3));
  EXPECT_FALSE(gpt2_124m().has_rope(0));
}

// 0.02 / sqrt(24) and 0.02 / sqrt(72) in the two families that scale.
TEST(ModelConfig, residual_projections_are_initialized_as_in_each_family) {
  EXPECT_NEAR(gpt2_124m().residual_init_std(), 0.00408248, 1e-8);
  EXPECT_NEAR(smollm3_3b().residual_init_std(), 0.00235702, 1e-8);
  for (const auto& c : {llama3_8b(), qwen2_05b(), qwen3_06b()})
    EXPECT_EQ(c.residual_init_std(), 0.02f) << name(c.family);
}

TEST(ModelConfig, a_wrong_value_is_rejected_by_key_with_the_expected_value) {
  using Mistake = void (*)(ModelConfig&);
  const std::pair<const char*, Mistake> mistakes[] = {
      {"layers is 0", [](auto& c) { c.layers = 0; }},
      {"kv_heads is 5", [](auto& c) { c.kv_heads = 5; }},
      {"head_size is 127", [](auto& c) { c.head_size = 127; }},
      {"norm_epsilon is 0", [](auto& c) { c.norm_epsilon = 0; }},
      {"rope_theta is 0", [](auto& c) { c.rope_theta = 0; }},
      {"rope_scaling.low_factor is 9", [](auto& c) { c.rope_scaling->low_factor = 9; }},
      {"qk_norm", [](auto& c) { c.qk_norm = true; }},
      {"width is 4100", [](auto& c) { c.width = 4100; }},
      {"init_std is -1", [](auto& c) { c.init_std = -1; }},
      {"vocabulary is 1099511627776", [](auto& c) { c.vocabulary = 1LL << 40; }},
  };
  EXPECT_NO_THROW(llama3_8b().validate());
  for (const auto& [what, make] : mistakes) {
    auto c = llama3_8b();
    make(c);
    expect_refusal<ConfigError>("model/config", what, {str("model.", what)}, [&] { c.validate(); });
  }
}

}  // namespace lockstep::testing::config_test
