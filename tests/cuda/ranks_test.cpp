// Training on several ranks of a GPU: against one rank of it, and against ranks on CPUs.
#include <gtest/gtest.h>

#include "core/gpu.h"
#include "tests/cuda/ranks_rig.h"

namespace lockstep::testing {
namespace {

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
TEST_P(RanksCuda, train_as_one_rank_and_as_cpus_do) {
  const auto& [c, ways] = GetParam();
  if (!can_run(c, ways)) GTEST_SKIP() << "each rank needs a GPU of its own";
  constexpr int kSteps = 2;
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
  if (ways == Ways::staged) return;  // the host's sums have one order
  const auto again = train_on_ranks(c, ways, kSteps);
  EXPECT_EQ(again.losses, many.losses);
  EXPECT_TRUE(again.state == many.state);
}

INSTANTIATE_TEST_SUITE_P(
    all, RanksCuda,
    ::testing::Combine(::testing::Values(RanksCase{"shard", Family::llama3, Mesh{{1, 2, 1}}},
                                         RanksCase{"shard_gradients", Family::gpt2, Mesh{{1, 2, 1}},
                                                   Sharding::gradients},
                                         RanksCase{"tensor", Family::gpt2, Mesh{{1, 1, 2}}},
                                         RanksCase{"shard_tensor", Family::llama3, Mesh{{1, 2, 2}}},
                                         RanksCase{"replicate", Family::gpt2, Mesh{{2, 1, 1}}},
                                         RanksCase{"two_domains", Family::llama3, Mesh{{1, 4, 1}},
                                                   Sharding::full, 2},
                                         RanksCase{"replicate_shard_bf16", Family::llama3,
                                                   Mesh{{2, 2, 1}}, Sharding::optimizer, 0,
                                                   DType::bf16},
                                         RanksCase{"tensor_bf16", Family::llama3, Mesh{{1, 1, 2}},
                                                   Sharding::full, 0, DType::bf16}),
                       ::testing::Values(Ways::staged, Ways::nccl)),
    [](const auto& p) {
      return str(std::get<0>(p.param).name,
                 std::get<1>(p.param) == Ways::nccl ? "_nccl" : "_staged");
    });

}  // namespace
}  // namespace lockstep::testing
