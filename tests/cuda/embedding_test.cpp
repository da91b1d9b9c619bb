#include "kernels/embedding.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::embedding_test {

// Many tiles of keys, and digits of two and three bytes. D is small, so that the sort dominates.
TEST(EmbeddingSortCuda, many_tokens_of_a_large_vocabulary_update_the_right_rows) {
  for (const std::int64_t V : {255, 256, 257, 50257, 131072}) {
    Twins t(static_cast<std::uint64_t>(V));
    Draw draw(static_cast<std::uint64_t>(V));
    const std::int64_t N = CudaTest::most(5000, 200000);
    const auto dweight = t.random({V, 1}, DType::fp32), dy = t.random({N, 1}, DType::fp32);
    std::vector<std::int32_t> values;
    for (std::int64_t n = 0; n < N; ++n)  // the first and the last id are half of them
      values.push_back(static_cast<std::int32_t>(n % 4 == 0   ? 0
                                                 : n % 4 == 1 ? V - 1
                                                              : draw.between(0, V - 1)));
    const auto ids = t.integers(values);
    t.run([&](const Side& on) {
      embedding_backward(on.stream, on.scratch,
                         {.dweight = on(dweight), .dy = on(dy), .ids = on(ids)});
    });
    t.expect_close(dweight, str("dweight of ", V), std::sqrt(static_cast<double>(N)));
  }
}

// Few terms of very different size: only the order of n, chunk by chunk, gives these bits.
TEST(EmbeddingSortCuda, a_run_is_summed_in_the_order_of_tokens) {
  Twins t(1);
  constexpr std::int64_t kTokens = 5000;
  const auto dweight = t.random({1000, 8}, DType::fp32), dy = t.random({kTokens, 8}, DType::fp32);
  std::vector<std::int32_t> values;
  for (std::int64_t n = 0; n < kTokens; ++n) {
    values.push_back(static_cast<std::int32_t>(n % 7 * 100));
    for (std::int64_t d = 0; d < 8; ++d)
      Bench::set(dy.host, n * 8 + d, get(dy.host, n * 8 + d) * std::exp2(n * 37 % 20));
  }
  t.upload(dy.device, dy.host);
  const auto ids = t.integers(values);
  Doubles expected = doubles(dweight.host);
  std::vector<std::int64_t> tokens;  // sorted by id, then n
  for (std::int32_t id = 0; id < 7; ++id)
    for (std::int64_t n = id; n < kTokens; n += 7)
      tokens.push_back(n);
  for (std::int64_t d = 0; d < 8; ++d)
    for (std::size_t i = 0; i < tokens.size();) {
      const auto id = values[static_cast<std::size_t>(tokens[i])];
      float sum = 0.0f;  // of the part of the run in this chunk of 32
      do
        sum += static_cast<float>(get(dy.host, tokens[i] * 8 + d));
      while (++i < tokens.size() && i % 32 != 0 &&
             values[static_cast<std::size_t>(tokens[i])] == id);
      auto& total = expected[static_cast<std::size_t>(id * 8 + d)];
      total = static_cast<double>(static_cast<float>(total) + sum);
    }
  t.run([&](const Side& on) {
    embedding_backward(on.stream, on.scratch,
                       {.dweight = on(dweight), .dy = on(dy), .ids = on(ids)});
  });
  EXPECT_EQ(doubles(t.download(dweight.device)), expected);
}

}  // namespace lockstep::testing::embedding_test
