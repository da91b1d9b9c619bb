// Compares the simulated instructions of kernels/ptx.cuh with plain loops. The simulator finds
// mistakes in their use.
#include <regex>

#include "tests/cuda/twins.h"
#include "tests/simt/ptx_kernels.cuh"
#include "tests/simt/simt.h"

namespace lockstep::testing::ptx_test {

TEST(SimtPtx, load_matrices_and_mma_multiply_matrices) {
  for (const bool transposed : {false, true}) {
    Twins t(1);
    const auto a = t.random({16, 16}, DType::bf16);
    const auto b = t.random(transposed ? Shape{8, 16} : Shape{16, 8}, DType::bf16);
    const auto d = t.random({16, 8}, DType::fp32);
    const auto left = doubles(a.host), right = doubles(b.host);
    auto expected = doubles(d.host);
    for (std::size_t i = 0; i < 16; ++i)
      for (std::size_t j = 0; j < 8; ++j)
        for (std::size_t k = 0; k < 16; ++k)
          expected[8 * i + j] += left[16 * i + k] * right[transposed ? 16 * j + k : 8 * k + j];
    multiply_on_gpu(t.stream(), d.device, a.device, b.device, transposed);
    expect_close(t.download(d.device), expected, 1e-6, "d", 1);
  }
}

TEST(SimtPtx, copies_arrive_by_groups_and_pairs_are_rounded) {
  constexpr std::int64_t kMissing = 5;
  Twins t(1);
  const auto from = t.random({32, 4}, DType::fp32, 3.0f);
  const auto to = t.poisoned({32, 4}, DType::bf16);
  copy_exp2_on_gpu(t.stream(), to.device, from.device, kMissing);
  auto expected = doubles(from.host);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = to_float(
        to_bf16(static_cast<float>(i < (32 - kMissing) * 4 ? std::exp2(expected[i]) : 1.0)));
  EXPECT_EQ(doubles(t.download(to.device)), expected);
}

struct Planted {
  PtxMistake mistake;
  const char *name, *message;  // a regular expression
};
class SimtPtxMistake : public ::testing::TestWithParam<Planted> {};

void copy_on_gpu(PtxMistake mistake, std::uint64_t seed) {
  simt::set_seed(seed);
  Twins t(seed);
  const auto from = t.random({64}, DType::fp32), to = t.poisoned({64}, DType::fp32);
  copy_with(mistake, t.stream(), to.device, from.device);
  EXPECT_EQ(doubles(t.download(to.device)), doubles(from.host)) << "seed " << seed;
}

TEST_P(SimtPtxMistake, is_found_in_any_order_of_threads) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    try {
      copy_on_gpu(GetParam().mistake, seed);
      ADD_FAILURE() << "seed " << seed << ": nothing is found";
    } catch (const simt::Violation& found) {
      EXPECT_TRUE(std::regex_search(found.what(), std::regex(GetParam().message))) << found.what();
    }
    copy_on_gpu(PtxMistake::none, seed);
  }
}
INSTANTIATE_TEST_SUITE_P(
    all, SimtPtxMistake,
    ::testing::Values(Planted{PtxMistake::no_wait, "no_wait",
                              "ends without waiting for its copies"},
                      Planted{PtxMistake::no_barrier, "no_barrier",
                              "nothing orders the two|no thread of its block wrote"},
                      Planted{PtxMistake::misaligned_row, "misaligned_row", "not a multiple"},
                      Planted{PtxMistake::lane_stays_away, "lane_stays_away",
                              "mma.sync, which thread .* never reaches"},
                      Planted{PtxMistake::read_before_sync, "read_before_sync",
                              "nothing orders the two|no thread of its block wrote"}),
    [](const auto& p) { return std::string(p.param.name); });

}  // namespace lockstep::testing::ptx_test
