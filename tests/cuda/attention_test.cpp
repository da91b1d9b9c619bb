#include "kernels/attention.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::attention_test {

// A tile of 128 queries has only two. The results of the missing queries, here the mean of v, are
// larger.
TEST(AttentionTensorCores, absmax_ignores_missing_queries) {
  Twins t(1);
  const std::int64_t K = 64;
  const auto qkv = t.random({2, 3, K}, DType::bf16);
  const float q[] = {4, 4}, k[] = {4, -4}, v[] = {1, 100};
  for (int token = 0; token < 2; ++token)
    for (std::int64_t i = 0; i < K; ++i) {
      const auto at = 3 * K * token + i;
      Bench::set(qkv.host, at, q[token]);
      Bench::set(qkv.host, at + K, k[token]);
      Bench::set(qkv.host, at + 2 * K, v[token]);
    }
  t.upload(qkv.device, qkv.host);
  const auto out = t.poisoned({2, 1, K}, DType::bf16), lse = t.poisoned({1, 1, 2}, DType::fp32);
  const auto absmax = t.random({1}, DType::fp32);
  t.run([&](const Side& on) {
    attention_forward(on.stream, on.scratch, on(out), on(lse), on(qkv), {}, on(absmax));
  });
  expect_absmax(t, absmax, out);
  EXPECT_EQ(get(absmax.host, 0), 1);
}

TEST(AttentionTensorCores, too_large_heads_are_refused) {
  Twins t(1);
  const auto qkv = t.random({4, 3, 257}, DType::bf16), out = t.poisoned({4, 1, 257}, DType::bf16);
  const auto lse = t.poisoned({1, 4}, DType::fp32), starts = t.integers({0, 0, 0, 0}, {1, 4});
  EXPECT_THROW(
      attention_forward(t.stream(), t.arena(), out.device, lse.device, qkv.device, starts.device),
      Error);
}

}  // namespace lockstep::testing::attention_test
