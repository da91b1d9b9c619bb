// Compares attention of cuDNN with the CPU kernel. A real GPU runs the library; simt_tests run the
// cuDNN of tests/simt, which checks the tensors that the engine passes to cuDNN.
#include "kernels/attention_cudnn.h"

#include "kernels/attention.h"
#include "tests/cuda/twins.h"

namespace lockstep::testing::attention_cudnn_test {

constexpr std::int64_t kMiB = 1 << 20;

std::vector<AttentionSizes> sizes_to_try() {
  std::vector<AttentionSizes> sizes{
      {2, 20, 2, 2, 64}, {1, 33, 4, 2, 64}, {3, 9, 2, 1, 128}, {2, 17, 6, 3, 128}};
  if (CudaTest::most(0, 1) > 0) {
    sizes.push_back({4, 1024, 4, 2, 64});
    sizes.push_back({3, 777, 4, 4, 128});
    sizes.push_back({1, 2048, 4, 1, 128});
  }
  return sizes;
}

struct Operands {
  Operands(Twins& twins, const AttentionSizes& s)
      : t(twins),
        sizes(s),
        qkv(t.random({s.B * s.T, s.H + 2 * s.G, s.K}, DType::bf16, 2.0f)),
        dout(t.random({s.B * s.T, s.H, s.K}, DType::bf16)),
        out(t.poisoned(dout.host.shape, DType::bf16)),
        dqkv(t.poisoned(qkv.host.shape, DType::bf16)),
        lse(t.poisoned({s.B, s.H, s.T}, DType::fp32)) {}

  void forward() {
    t.run([&](const Side& on) {
      if (on.is_host)
        attention_forward(on.stream, on.scratch, on(out), on(lse), on(qkv), {});
      else
        cudnn_attention_forward(on.stream, on.scratch, on(out), on(lse), on(qkv));
    });
  }
  // If chunk_bytes is 0, Lockstep's own kernels compute backward.
  void backward(std::int64_t chunk_bytes) {
    t.run([&](const Side& on) {
      if (on.is_host || chunk_bytes == 0)
        attention_backward(on.stream, on.scratch, on(dqkv), on(dout), on(out), on(lse), on(qkv),
                           {});
      else
        cudnn_attention_backward(on.stream, on.scratch, on(dqkv), on(dout), on(out), on(lse),
                                 on(qkv), chunk_bytes);
    });
  }
  // The tolerance is doubled, because dq and dk contain the rounding of out. With more query heads
  // than kv heads, cuDNN also rounds the dk and dv of each query head before it adds them.
  void expect_gradients() {
    const auto actual = doubles(t.download(dqkv.device)), expected = doubles(dqkv.host);
    const auto& s = sizes;
    const auto compare = [&](const char* what, std::int64_t first, std::int64_t count) {
      expect_close(heads(actual, first, count), heads(expected, first, count),
                   2 * tolerance(DType::bf16), what, 1);
    };
    compare("dq", 0, s.H);
    compare("dk", s.H, s.G);
    compare("dv", s.H + s.G, s.G);
  }
  // Heads [first, first + count) of each token of a tensor shaped like qkv.
  Doubles heads(const Doubles& values, std::int64_t first, std::int64_t count) const {
    Doubles part;
    for (std::int64_t n = 0; n < sizes.B * sizes.T; ++n) {
      const auto from = values.begin() + (n * (sizes.H + 2 * sizes.G) + first) * sizes.K;
      part.insert(part.end(), from, from + count * sizes.K);
    }
    return part;
  }

  Twins& t;
  AttentionSizes sizes;
  Twin qkv, dout, out, dqkv, lse;
};

struct CudnnAttention : ::testing::Test {
  void SetUp() override {
    Twins t(1);
    if (const auto why_not = prepare_cudnn_attention(t.stream(), {1, 64, 1, 1, 64});
        !why_not.empty())
      GTEST_SKIP() << why_not;
  }
  static std::string text(const AttentionSizes& s) {
    return str("B ", s.B, " T ", s.T, " H ", s.H, " G ", s.G, " K ", s.K);
  }
};

TEST_F(CudnnAttention, forward_equals_the_cpu_kernel) {
  std::uint64_t seed = 0;
  for (const auto& s : sizes_to_try()) {
    SCOPED_TRACE(text(s));
    Twins t(++seed);
    Operands o(t, s);
    EXPECT_EQ(prepare_cudnn_attention(t.stream(), s), "");
    o.forward();
    t.expect_close(o.out, "out");
    t.expect_close(o.lse, "lse", 1);
  }
}

// Backward of both sides starts from the log-sum-exp and out of the CPU. Chunks have one kv head,
// one sequence, or several or all sequences.
TEST_F(CudnnAttention, backward_equals_the_cpu_kernel_in_any_chunks) {
  std::uint64_t seed = 0;
  for (const auto& s : sizes_to_try()) {
    SCOPED_TRACE(text(s));
    Twins t(++seed);
    Operands o(t, s);
    o.forward();
    for (const auto chunk_bytes :
         {std::int64_t{1}, cudnn_backward_bytes({1, s.T, s.H, s.G, s.K}), 64 * kMiB}) {
      SCOPED_TRACE(str("chunks of ", chunk_bytes));
      o.dqkv = t.poisoned(o.qkv.host.shape, DType::bf16);
      o.backward(chunk_bytes);
      o.expect_gradients();
    }
  }
}

TEST_F(CudnnAttention, its_log_sum_exp_serves_the_backward_of_lockstep) {
  Twins t(5);
  Operands o(t, {2, 70, 4, 2, 64});
  o.forward();
  const auto out = t.download(o.out.device), lse = t.download(o.lse.device);
  std::copy(out.data, out.data + out.bytes(), o.out.host.data);
  std::copy(lse.data, lse.data + lse.bytes(), o.lse.host.data);
  o.backward(0);
  o.expect_gradients();
}

TEST_F(CudnnAttention, a_measuring_stream_counts_the_workspace) {
  const Device gpu{Device::Kind::cuda, 0};
  Stream measuring(gpu, "measure", Stream::Mode::measuring);
  Arena nothing = Arena::measure(gpu), scratch = Arena::measure(gpu);
  const AttentionSizes s{8, 1024, 8, 2, 64};
  const auto shaped = [&](const Shape& shape, DType dtype) {
    return nothing.allocate("shape", dtype, shape);
  };
  const auto qkv = shaped({s.B * s.T, s.H + 2 * s.G, s.K}, DType::bf16);
  const auto out = shaped({s.B * s.T, s.H, s.K}, DType::bf16);
  const auto lse = shaped({s.B, s.H, s.T}, DType::fp32);
  cudnn_attention_forward(measuring, scratch, out, lse, qkv);
  EXPECT_GE(scratch.peak_bytes(), kCudnnForwardBytes);
  EXPECT_LT(scratch.peak_bytes(), kCudnnForwardBytes + 1024);
  cudnn_attention_backward(measuring, scratch, qkv, out, out, lse, qkv, 64 * kMiB);
  EXPECT_GE(scratch.peak_bytes(), cudnn_backward_bytes({2, s.T, s.H, s.G, s.K}));
  EXPECT_LT(scratch.peak_bytes(), 64 * kMiB);
}

TEST(CudnnChunks, are_as_large_as_the_workspace_allows) {
  const auto chunk = [](const AttentionSizes& s) { return cudnn_backward_chunk(s); };
  const AttentionSizes small{64, 1024, 12, 12, 64}, middle{12, 4096, 32, 8, 128};
  EXPECT_EQ(chunk(small), small);
  EXPECT_EQ(chunk(middle), (AttentionSizes{2, 4096, 32, 8, 128}));
  EXPECT_EQ(chunk({6, 8192, 32, 8, 128}), (AttentionSizes{1, 8192, 16, 4, 128}));
  EXPECT_EQ(chunk({2, 16384, 32, 8, 128}), (AttentionSizes{1, 16384, 4, 1, 128}));
  EXPECT_EQ(chunk({1, 65536, 32, 8, 128}), (AttentionSizes{1, 65536, 4, 1, 128}));
  EXPECT_EQ(chunk({1, 8192, 25, 25, 64}), (AttentionSizes{1, 8192, 5, 5, 64}));
  EXPECT_EQ(chunk({7, 4096, 25, 25, 64}), (AttentionSizes{1, 4096, 25, 25, 64}));
}

TEST(CudnnChunks, report_unsupported_sizes) {
  Twins t(1);
  EXPECT_NE(prepare_cudnn_attention(t.stream(), {1, 65536, 32, 8, 128}).find("65536 tokens needs"),
            std::string::npos);
  EXPECT_NE(prepare_cudnn_attention(t.stream(), {1, 64, 2, 1, 80}).find("80 elements"),
            std::string::npos);
}

}  // namespace lockstep::testing::attention_cudnn_test
