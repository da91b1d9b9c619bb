#include "dist/volume.h"

#include <gtest/gtest.h>

namespace lockstep::testing::volume_test {

// Compares the volume with formulas of papers. tests/train/step/volume_test.cpp compares it with a
// run.
constexpr std::int64_t kLayer = 1 << 20, kEnd = 1 << 18, kLayers = 6;
constexpr std::int64_t kParameters = kLayers * kLayer + 2 * kEnd;

StepShape shape_of(const Mesh& mesh, Sharding sharding, DType type) {
  StepShape step{.mesh = mesh,
                 .shard_inside = mesh.size(Axis::shard),
                 .replicate_inside = mesh.size(Axis::replicate),
                 .sharding = sharding,
                 .type = type,
                 .units = {},
                 .tokens = 128,
                 .layers = kLayers,
                 .width = 64};
  step.units.push_back({.elements = kEnd, .split = kEnd, .keep = Keep::ends});
  for (int l = 0; l < kLayers; ++l)
    step.units.push_back({.elements = kLayer, .split = kLayer, .keep = Keep::layers});
  step.units.push_back({.elements = kEnd, .split = kEnd, .keep = Keep::ends});
  return step;
}

std::int64_t bytes_of(const StepShape& step, Group group) {
  std::int64_t bytes = 0;
  for (const auto& term : step_volume(step))
    if (term.group == group) bytes += term.traffic.bytes;
  return bytes;
}

TEST(Volume, one_rank_receives_nothing) {
  EXPECT_TRUE(step_volume(shape_of({}, Sharding::full, DType::fp32)).empty());
}

// Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054), section 7: replicas receive 2 (r-1)/r of the
// gradients.
TEST(Volume, of_replicas_is_twice_the_gradients) {
  for (const int r : {2, 4, 8}) {
    const auto step = shape_of(Mesh{.replicate = r}, Sharding::full, DType::fp32);
    EXPECT_EQ(bytes_of(step, Group::replicate_inside) + bytes_of(step, Group::replicate),
              2 * (r - 1) * kParameters * 4 / r);
  }
}

// Sharding up to `gradients` has the volume of replicas, divided weights 1.5 times as much. Here
// two layers stay gathered between forward and backward, and backward does not gather the ends.
TEST(Volume, of_full_sharding_is_the_weights_twice_and_the_gradients_once) {
  for (const int d : {2, 4, 8}) {
    const auto parts = [&](std::int64_t elements) { return (d - 1) * elements * 2 / d; };
    const Mesh mesh{.shard = d};
    for (const auto sharding :
         {Sharding::optimizer, Sharding::gradients, Sharding::weights, Sharding::full}) {
      const auto step = shape_of(mesh, sharding, DType::bf16);
      EXPECT_EQ(bytes_of(step, Group::shard_inside), parts(kParameters));
      EXPECT_EQ(bytes_of(step, Group::gathers), divides_weights(sharding)
                                                    ? parts((2 * kLayers - 2) * kLayer + 2 * kEnd)
                                                    : parts(kParameters));
    }
  }
}

TEST(Volume, of_gradient_accumulation_grows_if_each_micro_batch_is_reduced) {
  auto step = shape_of(Mesh{.replicate = 2, .shard = 4}, Sharding::optimizer, DType::bf16);
  const auto bytes = [&](Sharding sharding, int micro_batches, Group group) {
    step.sharding = sharding;
    step.micro_batches = micro_batches;
    return bytes_of(step, group);
  };
  const auto once = bytes(Sharding::optimizer, 1, Group::shard_inside);
  EXPECT_EQ(bytes(Sharding::optimizer, 8, Group::shard_inside), once);
  EXPECT_EQ(bytes(Sharding::weights, 8, Group::shard_inside), once);
  EXPECT_EQ(bytes(Sharding::weights, 8, Group::gathers), bytes(Sharding::full, 8, Group::gathers));
  EXPECT_EQ(bytes(Sharding::gradients, 8, Group::shard_inside), 8 * once);
  EXPECT_EQ(bytes(Sharding::full, 8, Group::shard_inside), 8 * once);
  EXPECT_EQ(bytes(Sharding::full, 8, Group::replicate_inside),
            bytes(Sharding::full, 1, Group::replicate_inside));
  // In a further micro-batch, two layers are still gathered from backward.
  EXPECT_EQ(bytes(Sharding::full, 8, Group::gathers) - bytes(Sharding::full, 7, Group::gathers),
            3 * ((2 * kLayers - 4) * kLayer + 2 * kEnd) * 2 / 4);
}

// Korthikanti et al. 2022 (arXiv:2205.05198), section 4.2: an all-gather and a reduce-scatter for
// each of the two pairs of matrices, forward and backward, and an all-gather for the gradients of
// the weights.
TEST(Volume, of_tensor_ranks_is_ten_slices_a_layer_from_each_peer) {
  for (const int t : {2, 4, 8}) {
    auto step = shape_of(Mesh{.tensor = t}, Sharding::full, DType::bf16);
    const auto slice = step.tokens / t * step.width * 2;
    const auto ends = 4 * slice + 12 * step.tokens;
    EXPECT_EQ(bytes_of(step, Group::tensor), (t - 1) * (10 * kLayers * slice + ends));
    step.recomputes_blocks = true;
    EXPECT_EQ(bytes_of(step, Group::tensor), (t - 1) * (13 * kLayers * slice + ends));
  }
}

// Two domains of four ranks: the bytes between domains are a quarter of those without levels, but
// in fp32.
TEST(Volume, across_domains_has_gradient_sums_only) {
  auto step = shape_of(Mesh{.shard = 8}, Sharding::full, DType::bf16);
  step.shard_inside = 4;
  const auto n = kParameters / 8;
  EXPECT_EQ(bytes_of(step, Group::shard_inside), 3 * 2 * n * 2);
  EXPECT_EQ(bytes_of(step, Group::shard_across), n * 4);
}

// One rank in each domain, bf16 weights. A summand in bf16 has half the bytes, and so has a
// gathered sum. The sums of larger domains along the shard axis stay in fp32.
TEST(Volume, of_bf16_reductions_is_half_for_bf16_summands_and_for_replicas) {
  auto step = shape_of(Mesh{.replicate = 4, .shard = 8}, Sharding::full, DType::bf16);
  step.shard_inside = step.replicate_inside = 1;
  const auto bytes = [&](Reduce reduce, Group group) {
    step.reduce = reduce;
    return bytes_of(step, group);
  };
  EXPECT_EQ(bytes(Reduce::fp32, Group::shard_across), 7 * (kParameters / 8) * 4);
  EXPECT_EQ(bytes(Reduce::bf16, Group::shard_across), 7 * (kParameters / 8) * 2);
  for (const auto group : {Group::replicate_across, Group::replicate}) {
    EXPECT_EQ(bytes(Reduce::fp32, group), 3 * (kParameters / 8 / 4) * 4);
    EXPECT_EQ(bytes(Reduce::bf16, group), 3 * (kParameters / 8 / 4) * 2);
  }
  step.shard_inside = 4;
  step.replicate_inside = 2;
  EXPECT_EQ(bytes(Reduce::bf16, Group::shard_across), kParameters / 8 * 4);
  EXPECT_EQ(bytes(Reduce::bf16, Group::replicate_across), kParameters / 8 / 4 * 2);
}

// Rajbhandari et al. 2020, section 7: each rank moves a reduce-scatter of the gradients, and
// replicas an all-gather too, wherever the ranks are.
TEST(Volume, of_reductions_by_nccl_is_one_reduce_scatter_over_all_ranks) {
  auto step = shape_of(Mesh{.replicate = 4, .shard = 8}, Sharding::full, DType::bf16);
  step.reduce = Reduce::nccl;
  EXPECT_EQ(bytes_of(step, Group::shard), 7 * (kParameters / 8) * 2);
  EXPECT_EQ(bytes_of(step, Group::replicate), 2 * 3 * (kParameters / 8 / 4) * 2);
  for (const auto group :
       {Group::shard_inside, Group::shard_across, Group::replicate_inside, Group::replicate_across})
    EXPECT_EQ(bytes_of(step, group), 0);
}

}  // namespace lockstep::testing::volume_test
