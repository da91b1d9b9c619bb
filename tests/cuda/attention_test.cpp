#include "kernels/attention.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::attention_test {

struct Sizes {
  std::int64_t B, T, H, G, K;
  std::int64_t tokens() const { return B * T; }
  Shape qkv() const { return {tokens(), H + 2 * G, K}; }
  Shape out() const { return {tokens(), H, K}; }
  Shape lse() const { return {B, H, T}; }
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

// For those with: blocks have 64 or 128 tokens.
std::vector<Sizes> tensor_core_sizes() {
  std::vector<Sizes> sizes{{2, 140, 2, 1, 64}, {1, 300, 1, 1, 64}, {2, 1, 2, 2, 64},
                           {1, 128, 3, 1, 64}, {1, 64, 2, 2, 128}, {2, 75, 2, 1, 128},
                           {1, 200, 1, 1, 128}};
  if (CudaTest::most(0, 1) > 0) {
    sizes.push_back({2, 3001, 8, 2, 64});
    sizes.push_back({2, 4096, 6, 2, 128});
  }
  return sizes;
}

// One document a sequence, with document_start or without; or documents of up to a drawn number of
// tokens. The first `blind` tokens of a sequence see no key; in some draws some others.
Twin documents(Twins& t, Draw& draw, const Sizes& s, std::int64_t blind) {
  if (blind == 0 && draw.between(0, 3) == 0) return {};
  std::vector<std::int32_t> starts;
  const bool whole = draw.coin();
  const auto longest = draw.between(1, s.T);
  const bool has_blind = blind > 0 || draw.between(0, 2) == 0;
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t token = 0, start = 0, length = draw.between(1, longest); token < s.T;
         ++token) {
      if (!whole && token == start + length) {
        start = token;
        length = draw.between(1, longest);
      }
      const auto first = token < blind ? s.T : has_blind && token % 7 == 3 ? token + 1 : start;
      starts.push_back(static_cast<std::int32_t>(first));
    }
  return t.integers(starts, {s.B, s.T});
}

void check_forward(Draw& draw, const Sizes& s, DType dtype, std::int64_t blind = 0) {
  SCOPED_TRACE(s.text());
  Twins t(draw.seed());
  const auto qkv = t.random(s.qkv(), dtype, 2.0f), starts = documents(t, draw, s, blind);
  const auto out = t.poisoned(s.out(), dtype), lse = t.poisoned(s.lse(), DType::fp32);
  const auto absmax = draw.coin() ? t.random({1}, DType::fp32, 9) : Twin{};
  t.run([&](const Side& on) {
    attention_forward(on.stream, on.scratch, on(out), on(lse), on(qkv), on(starts), on(absmax));
  });
  t.expect_close(out, "out");
  t.expect_close(lse, "lse", 1);
  if (absmax.host) expect_absmax(t, absmax, out);
}

TEST_P(AttentionCuda, forward_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) { check_forward(draw, draw_sizes(draw), GetParam()); });
}

TEST(AttentionTensorCores, forward_equals_the_cpu_kernel) {
  for (const auto& s : tensor_core_sizes())
    for_seeds(1, 2, [&](Draw& draw) { check_forward(draw, s, DType::bf16); });
}

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

// Heads [first, first + count) of each token of a tensor shaped like qkv.
Doubles heads_of(const Doubles& values, const Sizes& s, std::int64_t first, std::int64_t count) {
  Doubles part;
  for (std::int64_t n = 0; n < s.tokens(); ++n) {
    const auto from = values.begin() + (n * (s.H + 2 * s.G) + first) * s.K;
    part.insert(part.end(), from, from + count * s.K);
  }
  return part;
}

// dq and dk come from the difference of dout v and dout out, into which the rounding of out enters:
// twice the tolerance.
void check_backward(Draw& draw, const Sizes& s, DType dtype, std::int64_t blind = 0) {
  SCOPED_TRACE(s.text());
  Twins t(draw.seed());
  const auto qkv = t.random(s.qkv(), dtype, 2.0f), starts = documents(t, draw, s, blind);
  const auto dout = t.random(s.out(), dtype), out = t.poisoned(s.out(), dtype);
  const auto lse = t.poisoned(s.lse(), DType::fp32), dqkv = t.poisoned(s.qkv(), dtype);
  t.run([&](const Side& on) {
    if (on.is_host) attention_forward(on.stream, on.scratch, on(out), on(lse), on(qkv), on(starts));
  });
  t.upload(out.device, out.host);  // both sides start from the same
  t.upload(lse.device, lse.host);
  t.run([&](const Side& on) {
    attention_backward(on.stream, on.scratch, on(dqkv), on(dout), on(out), on(lse), on(qkv),
                       on(starts));
  });
  const auto actual = doubles(t.download(dqkv.device)), expected = doubles(dqkv.host);
  const auto compare = [&](const char* what, double bound, std::int64_t first, std::int64_t count) {
    expect_close(heads_of(actual, s, first, count), heads_of(expected, s, first, count), bound,
                 what, 1);
  };
  compare("dq", 2 * tolerance(dtype), 0, s.H);
  compare("dk", 2 * tolerance(dtype), s.H, s.G);
  compare("dv", tolerance(dtype), s.H + s.G, s.G);
}

TEST_P(AttentionCuda, backward_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) { check_backward(draw, draw_sizes(draw), GetParam()); });
}

TEST(AttentionTensorCores, backward_equals_the_cpu_kernel) {
  std::uint64_t seed = 0;
  for (const auto& s : tensor_core_sizes())
    for_seeds(++seed, 1, [&](Draw& draw) { check_backward(draw, s, DType::bf16); });
}

// Blocks of queries, and of keys, without a step.
TEST(AttentionTensorCores, blocks_that_see_no_key_equal_the_cpu_kernel) {
  std::uint64_t seed = 0;
  for (const auto& s : {Sizes{1, 300, 2, 1, 64}, Sizes{2, 140, 1, 1, 128}})
    for (const auto blind : {std::int64_t{135}, s.T})
      for_seeds(++seed, 1, [&](Draw& draw) {
        check_forward(draw, s, DType::bf16, blind);
        check_backward(draw, s, DType::bf16, blind);
      });
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
