// Fp8 matmuls on several ranks. Scales and blocks are the same as on one rank. As in bf16, results
// differ only by the order and rounding of sums.
#include <gtest/gtest.h>

#include "tests/train/layout_rig.h"

namespace lockstep::testing::fp8_layouts_test {

TrainingConfig config_of(Fp8Matmuls fp8, Family family) {
  TrainingConfig config = tiny(DType::bf16);
  auto& m = config.model;
  m = small_model(family, family == Family::gpt2 ? 256 : 128, 4);
  m.layers = 3;
  m.head_size = 64;
  m.mlp_width = 256;
  m.max_positions = 128;
  config.sequence_length = 128;
  config.micro_batch_sequences = 1;
  config.global_batch_sequences = 4;
  config.fp8 = fp8;
  config.fp8_gradients = fp8 == Fp8Matmuls::block ? DType::fp8_e4m3 : DType::fp8_e5m2;
  return config;
}

// |found - expected| / |expected|, in the norm over all parameters.
double distance(const Assembled& found, const Assembled& expected) {
  double difference = 0, size = 0;
  for (const auto& [name, whole] : expected.values())
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const double d = found.values().at(name)[i] - whole[i];
      difference += d * d;
      size += whole[i] * whole[i];
    }
  return std::sqrt(difference / size);
}

class Fp8Layouts : public LayoutTestWith<std::tuple<Fp8Matmuls, std::pair<Family, Layout>>> {};

TEST_P(Fp8Layouts, train_as_one_rank_does) {
  const auto& [family, layout] = std::get<1>(GetParam());
  const auto config = config_of(std::get<0>(GetParam()), family);
  const auto one = train_on({}, config, 3);
  const auto expect_fresh = [](LayoutRank& rank) {
    auto& params = rank.training().params();
    auto& stream = rank.stream();
    const auto updated = fp8_copies(params, stream);
    EXPECT_FALSE(updated.empty());
    params.refresh_weights(stream);  // makes the copies again from all weights
    EXPECT_TRUE(fp8_copies(params, stream) == updated);
  };
  const auto many = train_on(layout, config, 3, {.behind = expect_fresh});
  EXPECT_EQ(many.initial.values(), one.initial.values());
  // Data parallel ranks compute the numbers of one rank until gradients are sent in bf16, rounded
  // to 2^-9. Tensor ranks also round each partial sum to bf16. Each fp8 value stands for 16 to 32
  // bf16 numbers; the last of them may become the next fp8 value, an eighth or a quarter away.
  const bool by_tensor = layout.mesh.size(Axis::tensor) > 1;
  EXPECT_NEAR(many.losses[0], one.losses[0], (by_tensor ? 2e-3 : 1e-6) * one.losses[0]);
  EXPECT_LT(distance(many.gradients, one.gradients), by_tensor ? 0.1 : 1.0 / 256);
  for (std::size_t i = 1; i < one.losses.size(); ++i)
    EXPECT_NEAR(many.losses[i], one.losses[i], 2e-3 * one.losses[i]) << "step " << i + 1;
  EXPECT_EQ(train_on(layout, config, 3).weights.values(), many.weights.values());
}

TEST_P(Fp8Layouts, resume_bitwise_from_their_checkpoint) {
  const auto& [family, layout] = std::get<1>(GetParam());
  expect_a_resume_is_bitwise(layout, config_of(std::get<0>(GetParam()), family));
}

using Case = std::tuple<Fp8Matmuls, std::pair<Family, Layout>>;
const auto kName = [](const ::testing::TestParamInfo<Case>& c) {
  const auto& [fp8, model] = c.param;
  return str(fp8 == Fp8Matmuls::tensor ? "tensor_" : "block_", name(model.first), "_",
             name_of(model.second));
};
const std::pair kFull{Family::llama3, Layout{Mesh{.shard = 4}}};
const std::pair kGradients{Family::gpt2, Layout{Mesh{.shard = 2}, Sharding::gradients}};
const std::pair kOptimizer{Family::qwen3,
                           Layout{Mesh{.replicate = 2, .shard = 2}, Sharding::optimizer}};
const std::pair kTensor{Family::gpt2, Layout{Mesh{.tensor = 2}}};
const std::pair kReplicateTensor{Family::llama3, Layout{Mesh{.replicate = 2, .tensor = 2}}};
const std::pair kShardTensor{Family::llama3, Layout{Mesh{.shard = 2, .tensor = 2}}};

// CI runs each layout with one kind of scales, --full with the other.
constexpr auto kScaledTensors = Fp8Matmuls::tensor, kScaledBlocks = Fp8Matmuls::block;
INSTANTIATE_TEST_SUITE_P(
    some, Fp8Layouts,
    ::testing::Values(Case{kScaledTensors, kFull}, Case{kScaledBlocks, kGradients},
                      Case{kScaledTensors, kOptimizer}, Case{kScaledTensors, kTensor},
                      Case{kScaledBlocks, kReplicateTensor}, Case{kScaledBlocks, kShardTensor}),
    kName);
INSTANTIATE_TEST_SUITE_P(
    full_others, Fp8Layouts,
    ::testing::Values(Case{kScaledBlocks, kFull}, Case{kScaledTensors, kGradients},
                      Case{kScaledBlocks, kOptimizer}, Case{kScaledBlocks, kTensor},
                      Case{kScaledTensors, kReplicateTensor}, Case{kScaledTensors, kShardTensor}),
    kName);

}  // namespace lockstep::testing::fp8_layouts_test
