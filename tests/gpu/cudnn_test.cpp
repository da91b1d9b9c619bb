// Tests the graphs for cuDNN without a GPU. From h200_deviceprop.json, its library and heuristics
// choose kernels for an H200.
#include "kernels/cudnn.h"

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

namespace lockstep::cudnn_test {

constexpr int kHopper = 90;

struct CudnnGraphs : ::testing::Test {
  void SetUp() override {
    if (const auto why_not = why_no_cudnn(); !why_not.empty()) GTEST_SKIP() << why_not;
    std::ifstream file(LOCKSTEP_DEVICE_PROPERTIES);
    properties.assign(std::istreambuf_iterator<char>(file), {});
    ASSERT_FALSE(properties.empty());
  }
  std::string why_not(const CudnnGraph& graph) const {
    return why_no_cudnn_kernels(graph, properties, kHopper);
  }
  std::string properties;
};

// Lengths near multiples of its tiles, chunks of sequences and of kv heads, with and without GQA.
TEST_F(CudnnGraphs, each_has_kernels_within_its_workspace) {
  for (const std::int64_t K : {64, 128})
    for (const auto& [H, G] : {std::pair{12, 12}, {25, 25}, {32, 8}, {64, 8}, {6, 1}})
      for (const std::int64_t T : {2, 77, 1000, 1024, 4096, 8192, 16384}) {
        const AttentionSizes whole{4, T, H, G, K}, chunk = cudnn_backward_chunk(whole);
        EXPECT_EQ(why_not(cudnn_graph(whole, whole, false)), "");
        EXPECT_EQ(why_not(cudnn_graph(whole, chunk, true)), "");
      }
}

// The formula is exactly the workspace of cuDNN, plus delta and 4096 bytes.
TEST_F(CudnnGraphs, a_smaller_workspace_is_rejected) {
  for (const AttentionSizes s : {AttentionSizes{2, 1000, 12, 12, 64}, {3, 2048, 8, 2, 128}}) {
    auto graph = cudnn_graph(s, s, true);
    graph.most_bytes -= 4 * s.B * s.H * s.T + 4096;
    EXPECT_NE(why_not(graph), "");
    graph.most_bytes += 4096;
    EXPECT_EQ(why_not(graph), "");
  }
}

TEST_F(CudnnGraphs, sizes_without_kernels_are_reported) {
  const AttentionSizes odd{1, 64, 2, 1, 68};
  EXPECT_NE(why_not(cudnn_graph(odd, odd, true)).find("hidden_dim should be multiple of 8"),
            std::string::npos);
}

}  // namespace lockstep::cudnn_test
