#include "launch/preflight/compute_checks.h"

#include <cmath>

#include "tests/launch/preflight/preflight_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::compute_checks_test {

constexpr MatmulShape kSmall{64, 64, 64, DType::bf16};

// docs/preflight.md has these limits of an H100: 2.8 of 3.35 TB/s, 52 of 55 GB/s.
TEST(ComputeChecks, a_known_gpu_has_limits) {
  LoneRank lone;
  lone.rank.known = find_hardware("NVIDIA H100 80GB HBM3");
  ASSERT_NE(lone.rank.known, nullptr);
  const std::vector<MatmulShape> shapes{kSmall, {64, 64, 64, DType::fp32}};
  check_products(lone.rank, shapes, nullptr);
  check_memory(lone.rank);
  check_host_copies(lone.rank);
  const auto limit = [&](const char* check) {
    const Finding* finding = find(lone.rank.findings, check);
    EXPECT_NE(finding, nullptr) << check;
    return finding == nullptr ? Finding::kNone : finding->limit;
  };
  EXPECT_NEAR(limit("memory, read and written"), 2.8e12, 0.03e12);
  EXPECT_NEAR(limit("copy from the host"), 52e9, 0.5e9);
  EXPECT_NEAR(limit("copy to the host"), 52e9, 0.5e9);
  const double price = predicted_seconds(kSmall, *lone.rank.known);
  EXPECT_NEAR(limit("product 64 x 64 x 64 bf16"), 0.9 * 2 * 64 * 64 * 64 / price, 1);
  EXPECT_TRUE(std::isnan(limit("product 64 x 64 x 64 fp32")));
  // A large matmul reaches 71 % of 989 TFLOP/s under the power cap.
  const MatmulShape large{8192, 8192, 8192, DType::bf16};
  EXPECT_NEAR(large.flops() / predicted_seconds(large, *lone.rank.known), 0.71 * 989e12, 30e12);
}

TEST(ComputeChecks, cpus_have_a_limit_only_for_their_share_of_time) {
  LoneRank lone;
  check_products(lone.rank, std::vector{kSmall}, nullptr);
  check_memory(lone.rank);
  check_host_copies(lone.rank);
  EXPECT_EQ(lone.rank.findings.size(), 5u);
  for (const Finding& one : lone.rank.findings) {
    EXPECT_EQ(one.failure, "") << one.check;
    EXPECT_GT(one.value, 0) << one.check;
    const bool is_share = one.check == "share of its CPU time";
    EXPECT_EQ(is_share ? one.limit == 0.9 : std::isnan(one.limit), true) << one.check;
    EXPECT_EQ(one.tolerance > 0, !is_share) << one.check;
  }
  EXPECT_LE(find(lone.rank.findings, "share of its CPU time")->value, 1);
}

// A measuring stream copies nothing, so that the destination differs.
TEST(ComputeChecks, a_copy_is_compared_with_its_source) {
  LoneRank lone;
  Stream idle(Device{}, "idle", Stream::Mode::measuring, 1);
  PreflightRank rank{lone.world, lone.topology, lone.comms, idle, nullptr, {}};
  EXPECT_EQ(check_memory(rank), 0);
  expect_wording("launch/preflight_checks", "a copy with other bits",
                 rank.findings.front().failure);
}

// Each rank multiplies the same numbers, so that bits of ranks can be compared.
TEST(ComputeChecks, equal_matmuls_have_equal_bits_and_others_differ) {
  const auto bits = [](const MatmulShape& shape) {
    LoneRank lone;
    check_products(lone.rank, std::vector{shape}, nullptr);
    return lone.rank.findings.front().bits;
  };
  const auto one = bits(kSmall);
  EXPECT_EQ(one.size(), 32u);
  EXPECT_EQ(bits(kSmall), one);
  EXPECT_NE(bits({64, 64, 128, DType::bf16}), one);
}

TEST(ComputeChecks, the_best_rate_of_each_data_type_is_returned) {
  LoneRank lone;
  const std::vector<MatmulShape> shapes{{8, 8, 8, DType::fp32}, {256, 256, 256, DType::fp32}};
  const auto rates = check_products(lone.rank, shapes, nullptr);
  const auto rate = [&](const char* check) { return find(lone.rank.findings, check)->value; };
  EXPECT_EQ(rates.fp32,
            std::max(rate("product 8 x 8 x 8 fp32"), rate("product 256 x 256 x 256 fp32")));
  EXPECT_EQ(rates.bf16, 0);
}

}  // namespace lockstep::testing::compute_checks_test
