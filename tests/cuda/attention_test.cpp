#include "kernels/attention.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::attention_test {

struct Sizes {
  std::int64_t B, T, H, G, K;
  std::int64_t tokens() const { return B * T; }
  Shape qkv() const { return {tokens(), H + 2 * G, K}; }
  Shape out() const { return {tokens(), H, K}; }
  std::string text() const { return str("B ", B, " T ", T, " H ", H, " G ", G, " K ", K); }
};

// For the kernels without tensor cores, whose blocks have 32 tokens.
struct AttentionCuda : CudaTest {
  static Sizes draw_sizes(Draw& draw) {
    const auto T = draw.size(most(75, 1000)), G = draw.between(1, 2);
    return {draw.between(1, 2), T, G * draw.between(1, 3), G,
            draw.coin() ? 8 * draw.between(1, 32) : draw.size(150)};
  }
};
INSTANTIATE_TEST_SUITE_P(types, AttentionCuda, kFloatTypes, dtype_name);

// A tile of 128 queries has two: what the others make of no query, here the mean of v, is larger.
TEST(AttentionTensorCores, absmax_is_that_of_queries_that_are_there) {
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

// A cache [B, C, G, K] whose first tokens are there, and NaN behind them.
Twin cache_of(Twins& t, const Shape& shape, DType dtype, std::int64_t tokens) {
  const auto cache = t.random(shape, dtype, 2.0f);
  const auto row = shape[2] * shape[3];
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    if (i / row % shape[1] >= tokens)
      Bench::set(cache.host, i, std::numeric_limits<float>::quiet_NaN());
  t.upload(cache.device, cache.host);
  return cache;
}

// Prefill of s.T tokens behind those that are there, then one token, and a few at a time; sequences
// come to stand at different places.
void check_cached(Draw& draw, const Sizes& s, std::int64_t there, DType dtype) {
  SCOPED_TRACE(str(s.text(), " behind ", there));
  Twins t(draw.seed());
  const Shape shape{s.B, there + s.T + draw.between(20, 300), s.G, s.K};
  const auto keys = cache_of(t, shape, dtype, there), values = cache_of(t, shape, dtype, there);
  std::vector<std::int64_t> done(static_cast<std::size_t>(s.B), there);
  for (const auto count : {s.T, std::int64_t{1}, draw.between(2, 7), draw.between(8, 12)}) {
    const Sizes now{s.B, count, s.H, s.G, s.K};
    const auto qkv = t.random(now.qkv(), dtype, 2.0f), out = t.poisoned(now.out(), dtype);
    std::vector<std::int32_t> positions;
    for (auto& d : done) {
      for (std::int64_t i = 0; i < count; ++i)
        positions.push_back(static_cast<std::int32_t>(d + i));
      d += count - (count == s.T ? draw.between(0, 1) : 0);  // the last one again, or not
    }
    const auto where = t.integers(positions, {s.B, count});
    t.run([&](const Side& on) {
      attention_cached(on.stream, on.scratch, on(out), {on(keys), on(values)}, on(qkv), on(where));
    });
    t.expect_close(out, "out");
    t.expect_equal(keys, "keys");
    t.expect_equal(values, "values");
  }
}

TEST_P(AttentionCuda, cached_equals_the_cpu_kernel) {
  for_seeds(1, 6, [&](Draw& draw) {
    auto s = draw_sizes(draw);
    const auto there = draw.coin() ? 0 : draw.between(1, most(400, 5000));  // spans of 256 keys
    if (there > 0) s.T = draw.between(8, 20);
    check_cached(draw, s, there, GetParam());
  });
}

TEST(AttentionTensorCores, cached_equals_the_cpu_kernel) {
  for_seeds(1, 1, [&](Draw& draw) {
    check_cached(draw, {2, 130, 2, 1, 64}, 0, DType::bf16);
    check_cached(draw, {1, 20, 3, 1, 64}, 300, DType::bf16);
    check_cached(draw, {2, 70, 2, 2, 128}, 0, DType::bf16);
    check_cached(draw, {1, 9, 2, 1, 128}, 270, DType::bf16);
  });
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
