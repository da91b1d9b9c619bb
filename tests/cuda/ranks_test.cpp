// Compares training on several ranks of a GPU with one rank, and with ranks on CPUs.
#include <gtest/gtest.h>
#include <string_view>
#include <vector>

#include "core/gpu.h"
#include "tests/cuda/ranks_rig.h"
#include "tests/train/layout_cases.h"

namespace lockstep::testing::ranks_test {

class RanksCuda : public ::testing::TestWithParam<std::tuple<RanksCase, Ways>> {};

bool can_run([[maybe_unused]] const RanksCase& c, [[maybe_unused]] Ways ways) {
#ifdef LOCKSTEP_SIMT
  return true;
#else
  return ways != Ways::nccl || (has_nccl() && gpu::devices().count >= c.mesh.world());
#endif
}

void expect_close(const RanksOutcome& found, const RanksOutcome& expected, double tolerance,
                  const char* what) {
  EXPECT_EQ(found.tokens, expected.tokens) << what;
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], tolerance * expected.losses[i])
        << what << ", step " << i + 1;
    EXPECT_NEAR(found.norms[i], expected.norms[i], 10 * tolerance * expected.norms[i])
        << what << ", step " << i + 1;
  }
}

// The steps after the first start from weights that differ by roundings.
void expect_trained_as_one_rank_and_as_cpus(const RanksCase& c, Ways ways) {
  constexpr int kSteps = 3;
  const double tolerance = c.compute == DType::bf16 ? 1e-2 : 1e-5;
  const auto many = train_on_ranks(c, ways, kSteps);
  RanksCase alone = c;
  alone.mesh = Mesh{};
  const auto one = train_on_ranks(alone, Ways::staged, kSteps);
  expect_close(many, one, tolerance, "one rank");
  const auto cpus = train_on_ranks(c, Ways::threads, kSteps);
  expect_close(many, cpus, tolerance, "CPUs");
  EXPECT_EQ(many.evaluated.tokens, cpus.evaluated.tokens);
  EXPECT_NEAR(many.evaluated.loss, cpus.evaluated.loss, 10 * tolerance * cpus.evaluated.loss);
  if (c.compute == DType::fp32) {
    EXPECT_EQ(many.sampled, one.sampled);
  }
  const auto again = train_on_ranks(c, ways, kSteps);
  EXPECT_EQ(again.losses, many.losses);
  EXPECT_TRUE(again.state == many.state);
}

TEST_P(RanksCuda, train_as_one_rank_and_as_cpus_do) {
  const auto& [c, ways] = GetParam();
  if (!can_run(c, ways)) GTEST_SKIP() << "each rank needs a GPU of its own";
  expect_trained_as_one_rank_and_as_cpus(c, ways);
}

constexpr auto kCheap = Recompute::cheap, kBlock = Recompute::block;

// `often`: also in CI, two cases by NCCL and one by staged groups.
using CaseAndWays = std::tuple<RanksCase, Ways>;
std::vector<CaseAndWays> cases(bool often) {
  const RanksCase all[] = {
      RanksCase{.name = "shard", .family = Family::llama3, .mesh = Mesh{.shard = 2}},
      RanksCase{.name = "shard_block",
                .family = Family::gpt2,
                .mesh = Mesh{.shard = 2},
                .recompute = kBlock,
                .sequences = 5},
      RanksCase{.name = "shard_optimizer",
                .family = Family::llama3,
                .mesh = Mesh{.shard = 2},
                .sharding = Sharding::optimizer,
                .recompute = kCheap,
                .sequences = 4},
      RanksCase{.name = "shard_gradients",
                .family = Family::gpt2,
                .mesh = Mesh{.shard = 2},
                .sharding = Sharding::gradients},
      RanksCase{
          .name = "tensor", .family = Family::gpt2, .mesh = Mesh{.tensor = 2}, .recompute = kCheap},
      RanksCase{.name = "tensor_block",
                .family = Family::llama3,
                .mesh = Mesh{.tensor = 2},
                .recompute = kBlock,
                .sequences = 1},
      RanksCase{.name = "shard_tensor",
                .family = Family::llama3,
                .mesh = Mesh{.shard = 2, .tensor = 2},
                .recompute = kCheap,
                .sequences = 4},
      RanksCase{.name = "replicate",
                .family = Family::gpt2,
                .mesh = Mesh{.replicate = 2},
                .recompute = kBlock},
      RanksCase{.name = "two_domains",
                .family = Family::llama3,
                .mesh = Mesh{.shard = 4},
                .per_domain = 2,
                .recompute = kCheap,
                .sequences = 5},
      RanksCase{.name = "replicate_shard_bf16",
                .family = Family::llama3,
                .mesh = Mesh{.replicate = 2, .shard = 2},
                .sharding = Sharding::optimizer,
                .compute = DType::bf16,
                .recompute = kBlock},
      RanksCase{.name = "reduce_bf16",
                .family = Family::gpt2,
                .mesh = Mesh{.replicate = 4},
                .per_domain = 2,
                .compute = DType::bf16,
                .reduce = Reduce::bf16},
      RanksCase{.name = "reduce_nccl",
                .family = Family::llama3,
                .mesh = Mesh{.replicate = 2, .shard = 2},
                .per_domain = 2,
                .compute = DType::bf16,
                .reduce = Reduce::nccl},
      RanksCase{.name = "tensor_bf16",
                .family = Family::llama3,
                .mesh = Mesh{.tensor = 2},
                .compute = DType::bf16},
      RanksCase{.name = "tensor_fp8",
                .family = Family::gpt2,
                .mesh = Mesh{.tensor = 2},
                .compute = DType::bf16,
                .recompute = kCheap,
                .sequences = 1,
                .fp8 = Fp8Matmuls::tensor},
      RanksCase{.name = "chunks",
                .family = Family::llama3,
                .mesh = Mesh{.shard = 2, .tensor = 2},
                .recompute = kCheap,
                .chunks = 2},
      RanksCase{.name = "chunks_block_bf16",
                .family = Family::gpt2,
                .mesh = Mesh{.tensor = 2},
                .compute = DType::bf16,
                .recompute = kBlock,
                .chunks = 3},
      RanksCase{.name = "chunks_fp8",
                .family = Family::gpt2,
                .mesh = Mesh{.tensor = 2},
                .compute = DType::bf16,
                .recompute = kCheap,
                .sequences = 1,
                .fp8 = Fp8Matmuls::tensor,
                .chunks = 2}};
  const auto is_often = [](const RanksCase& c, Ways ways) {
    const std::string_view name = c.name;
    if (ways == Ways::staged) return name == "shard_block";
    return name == "chunks" || name == "replicate_shard_bf16";
  };
  std::vector<CaseAndWays> chosen;
  for (const auto& c : all)
    for (const auto ways : {Ways::staged, Ways::nccl})
      if (is_often(c, ways) == often) chosen.emplace_back(c, ways);
  return chosen;
}
const auto kCaseName = [](const ::testing::TestParamInfo<CaseAndWays>& p) {
  return str(std::get<0>(p.param).name, std::get<1>(p.param) == Ways::nccl ? "_nccl" : "_staged");
};
INSTANTIATE_TEST_SUITE_P(all, RanksCuda, ::testing::ValuesIn(cases(true)), kCaseName);
INSTANTIATE_TEST_SUITE_P(full_rest, RanksCuda, ::testing::ValuesIn(cases(false)), kCaseName);

// The cases of layouts_test.cpp. The simulated GPU runs one of the three cases of a layout, most of
// them only at night.
std::vector<LayoutCase> cases_of_a_gpu(bool at_night) {
  auto cases = every_layout_and_pair();
#ifdef LOCKSTEP_SIMT
  for (std::size_t i = 0; i < cases.size() / 3; ++i)
    cases[i] = cases[3 * i + (i + i / 3) % 3];
  cases.resize(cases.size() / 3);
  for (std::size_t i = cases.size(); i-- > 0;)
    if ((i % 4 != 0) != at_night) cases.erase(cases.begin() + static_cast<std::ptrdiff_t>(i));
#else
  if (at_night) cases.clear();
#endif
  return cases;
}

void train_layout(const LayoutCase& c) {
  const auto& mesh = c.layout.mesh;
  const auto data_ranks = mesh.world() / mesh.size(Axis::tensor);
  expect_trained_as_one_rank_and_as_cpus({.name = "layout",
                                          .family = c.family,
                                          .mesh = mesh,
                                          .sharding = c.layout.sharding,
                                          .per_domain = c.layout.per_domain,
                                          .recompute = c.recompute,
                                          .sequences = data_ranks * c.micro_batches,
                                          .heads = 8},
                                         Ways::staged);
}

class EveryLayoutCuda : public ::testing::TestWithParam<LayoutCase> {};
class LayoutsAtNightCuda : public ::testing::TestWithParam<LayoutCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LayoutsAtNightCuda);

TEST_P(EveryLayoutCuda, full_trains_as_one_rank_and_as_cpus_do) {
  train_layout(GetParam());
}
TEST_P(LayoutsAtNightCuda, soak_train_as_one_rank_and_as_cpus_do) {
  train_layout(GetParam());
}

const auto kName = [](const ::testing::TestParamInfo<LayoutCase>& c) { return name_of(c.param); };
INSTANTIATE_TEST_SUITE_P(all, EveryLayoutCuda, ::testing::ValuesIn(cases_of_a_gpu(false)), kName);
INSTANTIATE_TEST_SUITE_P(all, LayoutsAtNightCuda, ::testing::ValuesIn(cases_of_a_gpu(true)), kName);

}  // namespace lockstep::testing::ranks_test
