// GPUs whose blocks have less shared memory than those of an H100: 8.6, 8.9 and 12.0 have 99 KiB.
// The simulated GPU rejects a launch that needs more.
#include "kernels/attention.h"
#include "tests/cuda/twins.h"
#include "tests/simt/simt.h"

namespace lockstep::testing::small_gpu_test {

class SmallGpu : public ::testing::Test {
 protected:
  SmallGpu() { simt::set_most_shared_bytes(99 << 10); }
  ~SmallGpu() override { simt::set_most_shared_bytes(before_); }

 private:
  const std::size_t before_ = simt::most_shared_bytes();
};

// Forward and backward of a sequence of 70 tokens, with two query heads per kv head.
void run_attention(std::int64_t K) {
  constexpr std::int64_t N = 70, H = 2, G = 1;
  Twins t(5);
  const auto qkv = t.random({N, H + 2 * G, K}, DType::bf16, 2.0f);
  const auto dout = t.random({N, H, K}, DType::bf16), out = t.poisoned({N, H, K}, DType::bf16);
  const auto lse = t.poisoned({1, H, N}, DType::fp32);
  const auto dqkv = t.poisoned({N, H + 2 * G, K}, DType::bf16);
  t.run([&](const Side& on) {
    attention_forward(on.stream, on.scratch, on(out), on(lse), on(qkv), {});
    attention_backward(on.stream, on.scratch, on(dqkv), on(dout), on(out), on(lse), on(qkv), {});
  });
  t.expect_close(out, "out");
  // dq and dk contain the rounding of out, which differs between the two sides.
  expect_close(doubles(t.download(dqkv.device)), doubles(dqkv.host), 3 * tolerance(DType::bf16),
               "dqkv", 1);
}

TEST_F(SmallGpu, has_attention_of_heads_of_64_and_128) {
  run_attention(64);
  run_attention(128);
}

TEST_F(SmallGpu, names_the_largest_head_that_it_supports) {
  try {
    run_attention(192);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(
        std::string(e.what()).find("heads of 192 elements; this GPU, whose blocks have 99 KiB "
                                   "of shared memory, takes 128 at most"),
        std::string::npos)
        << e.what();
  }
}

}  // namespace lockstep::testing::small_gpu_test
