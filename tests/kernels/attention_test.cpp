#include "kernels/attention.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <string>

#include "tests/kernels/draw.h"
#include "tests/kernels/reference_attention.h"
#include "tests/testing.h"

namespace lockstep::testing::attention_test {

using reference::AttentionShape;
using reference::FirstKeys;

// T = 1, T beside a multiple of any tile, one kv head, as many as query heads, between; odd K.
const AttentionShape kShapes[] = {{1, 1, 1, 1, 1},     {2, 1, 3, 1, 16},  {1, 2, 2, 2, 5},
                                  {3, 17, 4, 2, 32},   {2, 65, 2, 1, 64}, {1, 127, 2, 2, 80},
                                  {1, 200, 3, 1, 128}, {2, 96, 4, 4, 48}, {1, 300, 2, 1, 36},
                                  {1, 130, 2, 1, 256}, {1, 70, 4, 2, 200}};

FirstKeys whole_sequences(AttentionShape s) {
  return FirstKeys(static_cast<std::size_t>(s.tokens()), 0);
}

// Documents of 1 to `longest` tokens, other ones in each sequence.
FirstKeys documents(AttentionShape s, std::uint32_t longest, std::uint64_t seed = 77) {
  FirstKeys starts;
  for (std::int64_t b = 0; b < s.B; ++b) {
    std::int32_t start = 0, length = 0;
    for (std::int32_t t = 0; t < s.T; ++t) {
      if (t == start + length) {
        start = t;
        length = 1 + static_cast<std::int32_t>(philox(seed, static_cast<std::uint64_t>(b),
                                                      static_cast<std::uint64_t>(t))[0] %
                                               longest);
      }
      starts.push_back(start);
    }
  }
  return starts;
}

// As documents, but the first `blind` tokens of a sequence and some others see no key.
FirstKeys with_blind_tokens(AttentionShape s, std::int64_t blind) {
  auto starts = documents(s, 150);
  for (std::int64_t n = 0; n < s.tokens(); ++n)
    if (const auto t = n % s.T; t < blind || t % 7 == 3)
      starts[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(t < blind ? s.T : t + 1);
  return starts;
}

class Attention : public ::testing::TestWithParam<DType> {};

// Forward and backward of one qkv.
struct Attended {
  Attended(Bench& b, AttentionShape s, ConstTensor input, const FirstKeys& first_keys)
      : shape(s),
        starts(first_keys),
        qkv(input),
        dout(b.random(s.out(), input.dtype)),
        out(b.poisoned(s.out(), input.dtype)),
        lse(b.poisoned(s.lse(), DType::fp32)),
        dqkv(b.poisoned(s.qkv(), input.dtype)) {
    const auto document_start = b.integers(starts, {s.B, s.T});
    const auto absmax = b.poisoned({1}, DType::fp32);
    attention_forward(b.stream, b.arena, out, lse, qkv, document_start, absmax);
    expect_absmax(absmax, out);
    attention_backward(b.stream, b.arena, dqkv, dout, out, lse, qkv, document_start);
  }

  // Heads [first, first + count) of each token of a tensor shaped like qkv.
  Doubles heads(const Doubles& values, std::int64_t first, std::int64_t count) const {
    Doubles part;
    for (std::int64_t n = 0; n < shape.tokens(); ++n) {
      const auto from = values.begin() + (n * shape.heads() + first) * shape.K;
      part.insert(part.end(), from, from + count * shape.K);
    }
    return part;
  }

  // Each of dq, dk and dv beside its own largest element, or 1 where that is less: most are 0 where
  // documents are short. dq and dk come from the difference of dout v and dout out, into which the
  // rounding of out enters: twice the tolerance.
  void expect_gradients(double relative) const {
    const auto expected = reference::attention_gradient(doubles(dout), doubles(qkv), starts, shape);
    const auto actual = doubles(dqkv);
    const auto H = shape.H, G = shape.G;
    const auto compare = [&](const char* what, double bound, std::int64_t first,
                             std::int64_t count) {
      expect_close(heads(actual, first, count), heads(expected, first, count), bound, what, 1);
    };
    compare("dq", 2 * relative, 0, H);
    compare("dk", 2 * relative, H, G);
    compare("dv", relative, H + G, G);
  }

  AttentionShape shape;
  FirstKeys starts;
  ConstTensor qkv, dout;
  Tensor out, lse, dqkv;
};

TEST_P(Attention, forward_and_backward_equal_the_reference) {
  for (const auto s : kShapes)
    for (const auto& starts : {whole_sequences(s), documents(s, 5), documents(s, 150)}) {
      SCOPED_TRACE(str("T ", s.T, " K ", s.K));
      Bench b;
      const Attended run(b, s, b.random(s.qkv(), GetParam(), 2.0f), starts);
      const auto expected = reference::attention(doubles(run.qkv), starts, s);
      expect_close(run.out, expected.out, tolerance(GetParam()), "out");
      expect_close(run.lse, expected.lse, tolerance(DType::fp32), "lse");
      run.expect_gradients(tolerance(GetParam()));
    }
}

// Some tokens of a block, all of several blocks, all of a sequence.
TEST_P(Attention, a_token_that_sees_no_key_gives_zeros_and_an_lse_of_minus_infinity) {
  for (const AttentionShape s : {AttentionShape{2, 65, 2, 1, 64}, {1, 300, 3, 1, 36}})
    for (const std::int64_t blind : {std::int64_t{0}, std::int64_t{140}, s.T}) {
      SCOPED_TRACE(str("T ", s.T, ", the first ", blind));
      Bench b;
      const Attended run(b, s, b.random(s.qkv(), GetParam(), 2.0f), with_blind_tokens(s, blind));
      const auto expected = reference::attention(doubles(run.qkv), run.starts, s);
      EXPECT_EQ(get(run.lse, 3), -std::numeric_limits<double>::infinity());
      EXPECT_EQ(get(run.out, 3 * s.H * s.K), 0);
      expect_close(run.out, expected.out, tolerance(GetParam()), "out", 1);
      expect_close(run.lse, expected.lse, tolerance(DType::fp32), "lse", 1);
      run.expect_gradients(tolerance(GetParam()));
    }
}

// Scores up to +-1e3: the running maximum jumps by hundreds, most exponentials are 0, and many a
// softmax has one 1. An fp32 score of 1e3 is off by some 1e-4, and so is its exponential.
TEST_P(Attention, large_scores_equal_the_reference) {
  for (const AttentionShape s : {AttentionShape{1, 300, 2, 1, 36}, {2, 70, 2, 2, 64}})
    for (const auto& starts : {whole_sequences(s), documents(s, 150)}) {
      Bench b;
      const Attended run(b, s, b.random(s.qkv(), GetParam(), 30.0f), starts);
      const auto expected = reference::attention(doubles(run.qkv), starts, s);
      const auto [low, high] = std::minmax_element(expected.lse.begin(), expected.lse.end());
      EXPECT_LT(*low, -100);
      EXPECT_GT(*high, 700);
      expect_close(run.out, expected.out, tolerance(GetParam()) + 4e-4, "out");
      expect_close(run.lse, expected.lse, tolerance(DType::fp32), "lse");
      run.expect_gradients(tolerance(GetParam()) + 4e-4);
    }
}

// Whatever all scores of a query have in common drops out.
TEST_P(Attention, equal_scores_of_any_size_give_the_mean_of_the_values) {
  const AttentionShape s{1, 100, 2, 1, 16};
  for (const double score : {-8192.0, -1024.0, 1024.0, 8192.0}) {
    Bench b;
    const auto qkv = b.random(s.qkv(), GetParam());
    for (std::int64_t n = 0; n < s.T; ++n)
      for (std::int64_t i = 0; i < 3 * s.K; ++i)  // queries 2, keys score / 8: 16 products over 4
        Bench::set(qkv, n * 4 * s.K + i, i < 2 * s.K ? 2 : score / 8);
    const Attended run(b, s, qkv, whole_sequences(s));
    const auto expected = reference::attention(doubles(qkv), run.starts, s);
    EXPECT_NEAR(expected.lse[0], score, 1e-9);
    expect_close(run.out, expected.out, tolerance(GetParam()), "out");
    expect_close(run.lse, expected.lse, tolerance(DType::fp32), "lse");
  }
}

// The new tokens [first, first + count) of each sequence.
Tensor tokens_of(Bench& b, ConstTensor t, std::int64_t B, std::int64_t first, std::int64_t count) {
  const auto T = t.shape[0] / B, bytes = t.bytes() / t.shape[0];
  auto shape = t.shape;
  shape.size[0] = B * count;
  const auto part = b.arena.allocate("tokens", t.dtype, shape);
  for (std::int64_t i = 0; i < B; ++i)
    std::copy_n(t.data + (i * T + first) * bytes, count * bytes, part.data + i * count * bytes);
  return part;
}

// Prefill in two pieces, some decoding of several tokens at once, then one by one.
std::vector<std::int64_t> pieces(AttentionShape s) {
  std::vector<std::int64_t> counts{s.T - 31};
  for (auto done = s.T - 31; done < s.T; done += counts.back())
    counts.push_back(done >= s.T - 7 ? 1 : done < s.T - 16 ? 9 : 3);
  return counts;
}

// The output of all tokens, appended to the cache `counts` at a time.
Doubles cached_attention(Bench& b, Stream& stream, ConstTensor qkv, AttentionShape s,
                         const std::vector<std::int64_t>& counts) {
  const KvCache cache{b.poisoned({s.B, s.T + 3, s.G, s.K}, qkv.dtype),
                      b.poisoned({s.B, s.T + 3, s.G, s.K}, qkv.dtype)};
  Doubles all(static_cast<std::size_t>(s.out().elements()));
  std::int64_t done = 0;
  for (const auto count : counts) {
    const auto out = b.poisoned({s.B * count, s.H, s.K}, qkv.dtype);
    FirstKeys positions;
    for (std::int64_t i = 0; i < s.B * count; ++i)
      positions.push_back(static_cast<std::int32_t>(done + i % count));
    attention_cached(stream, b.arena, out, cache, tokens_of(b, qkv, s.B, done, count),
                     b.integers(positions, {s.B, count}));
    const auto values = doubles(out);
    const auto row = s.H * s.K;
    for (std::int64_t i = 0; i < s.B; ++i)
      std::copy_n(values.begin() + i * count * row, count * row,
                  all.begin() + (i * s.T + done) * row);
    done += count;
  }
  return all;
}

// More and fewer tokens than a span of the cache; one query head a kv head, and several.
const AttentionShape kCachedShapes[] = {{2, 90, 6, 2, 32},
                                        {1, 41, 3, 1, 20},
                                        {1, 560, 1, 1, 80},
                                        {1, 300, 5, 1, 132},
                                        {1, 70, 2, 1, 256}};

TEST_P(Attention, cached_equals_whole_token_by_token) {
  for (const auto s : kCachedShapes) {
    SCOPED_TRACE(str("T ", s.T, " K ", s.K));
    Bench b;
    const auto qkv = b.random(s.qkv(), GetParam(), 2.0f);
    expect_close(cached_attention(b, b.stream, qkv, s, pieces(s)),
                 reference::attention(doubles(qkv), whole_sequences(s), s).out,
                 tolerance(GetParam()), "out");
  }
}

TEST_P(Attention, cached_results_do_not_depend_on_the_thread_count) {
  for (const auto s : kCachedShapes) {
    Bench b;
    const auto qkv = b.random(s.qkv(), GetParam(), 2.0f);
    Stream one{Device{}, "one", Stream::Mode::immediate, 1};
    Stream three{Device{}, "three", Stream::Mode::immediate, 3};
    EXPECT_EQ(cached_attention(b, one, qkv, s, pieces(s)),
              cached_attention(b, three, qkv, s, pieces(s)));
  }
}

AttentionShape draw_shape(Draw& draw) {
  for (;;) {
    const auto B = draw.between(1, 3), T = draw.size(700), G = draw.between(1, 3);
    const AttentionShape s{B, T, G * draw.between(1, 5), G, draw.size(256)};
    if (s.tokens() * T * s.H * s.K <= 1 << 22) return s;
  }
}

// Sequences that are not of one length: each is prefilled alone, then all take their last token.
void check_lengths(Draw& draw, Bench& b, ConstTensor qkv, AttentionShape s, const Doubles& whole) {
  const KvCache cache{b.poisoned({s.B, s.T, s.G, s.K}, qkv.dtype),
                      b.poisoned({s.B, s.T, s.G, s.K}, qkv.dtype)};
  const auto last = b.poisoned({s.B, s.H + 2 * s.G, s.K}, qkv.dtype);
  const auto out = b.poisoned({s.B, s.H, s.K}, qkv.dtype);
  FirstKeys ends;
  Doubles expected;
  for (std::int64_t i = 0; i < s.B; ++i) {
    const auto end = draw.between(0, s.T - 1);
    FirstKeys positions;
    for (std::int64_t t = 0; t < end; ++t)
      positions.push_back(static_cast<std::int32_t>(t));
    if (end > 0)
      attention_cached(b.stream, b.arena, b.poisoned({end, s.H, s.K}, qkv.dtype),
                       {cache.keys.rows(i, 1), cache.values.rows(i, 1)}, qkv.rows(i * s.T, end),
                       b.integers(positions, {1, end}));
    ends.push_back(static_cast<std::int32_t>(end));
    const auto token = qkv.rows(i * s.T + end, 1);
    std::copy(token.data, token.data + token.bytes(), last.rows(i, 1).data);
    const auto row = whole.begin() + (i * s.T + end) * s.H * s.K;
    expected.insert(expected.end(), row, row + s.H * s.K);
  }
  attention_cached(b.stream, b.arena, out, cache, last, b.integers(ends, {s.B, 1}));
  expect_close(out, expected, tolerance(qkv.dtype), "out", 1);
}

void check_random(Draw& draw, DType dtype) {
  const auto s = draw_shape(draw);
  SCOPED_TRACE(str("B ", s.B, " T ", s.T, " H ", s.H, " G ", s.G, " K ", s.K));
  auto b = draw.bench();
  const auto longest = static_cast<std::uint32_t>(draw.size(2 * s.T));
  const auto starts = draw.coin() ? whole_sequences(s) : documents(s, longest, draw.seed());
  const Attended run(b, s, b.random(s.qkv(), dtype, 2.0f), starts);
  const auto expected = reference::attention(doubles(run.qkv), starts, s);
  expect_close(run.out, expected.out, tolerance(dtype), "out");
  expect_close(run.lse, expected.lse, tolerance(DType::fp32), "lse", 1);
  run.expect_gradients(tolerance(dtype));

  std::vector<std::int64_t> counts;
  for (std::int64_t done = 0; done < s.T; done += counts.back())
    counts.push_back(draw.size(s.T - done));
  SCOPED_TRACE("through the cache");
  const auto whole = reference::attention(doubles(run.qkv), whole_sequences(s), s).out;
  expect_close(cached_attention(b, b.stream, run.qkv, s, counts), whole, tolerance(dtype), "out");
  check_lengths(draw, b, run.qkv, s, whole);
}
TEST_P(Attention, random_shapes_equal_the_reference) {
  few_draws([](Draw& draw) { check_random(draw, GetParam()); });
}
TEST_P(Attention, full_random_shapes_equal_the_reference) {
  many_draws([](Draw& draw) { check_random(draw, GetParam()); });
}

TEST_P(Attention, results_do_not_depend_on_the_thread_count) {
  const AttentionShape s{1, 530, 4, 2, 48};  // backward: one pass, but two for 3 threads
  Bench b;
  const auto qkv = b.random(s.qkv(), GetParam(), 2.0f), dout = b.random(s.out(), GetParam());
  const auto starts = b.integers(with_blind_tokens(s, 280), {s.B, s.T});
  Tensor first_out, first_dqkv;
  for (const int threads : {1, 2, 3}) {
    Stream stream{Device{}, "threads", Stream::Mode::immediate, threads};
    const auto out = b.poisoned(s.out(), GetParam()), dqkv = b.poisoned(s.qkv(), GetParam());
    const auto lse = b.poisoned(s.lse(), DType::fp32);
    attention_forward(stream, b.arena, out, lse, qkv, starts);
    attention_backward(stream, b.arena, dqkv, dout, out, lse, qkv, starts);
    if (threads == 1) {
      first_out = out;
      first_dqkv = dqkv;
    }
    expect_bitwise_equal(out, first_out, "out");
    expect_bitwise_equal(dqkv, first_dqkv, "dqkv");
  }
}

void set_bits(ConstTensor t, std::int64_t i, std::uint32_t bits) {
  auto* data = const_cast<std::byte*>(t.data);
  if (t.dtype == DType::bf16)
    reinterpret_cast<BFloat16*>(data)[i].bits = static_cast<std::uint16_t>(bits >> 16);
  else
    reinterpret_cast<float*>(data)[i] = std::bit_cast<float>(bits);
}

// One element of q, k or v of one token, with the bits that debug builds and fp8 leave behind.
TEST_P(Attention, a_nan_reaches_all_that_it_is_in) {
  const AttentionShape s{1, 150, 2, 1, 32};
  constexpr std::int64_t kToken = 70;
  for (const std::uint32_t bits : {0xffffffffu, 0x7fffffffu, 0x7fc00000u})
    for (const int part : {0, 2, 3}) {  // the first query head, the key, the value
      SCOPED_TRACE(str(std::hex, bits, " in head ", part));
      Bench b;
      const auto qkv = b.random(s.qkv(), GetParam());
      set_bits(qkv, (kToken * 4 + part) * s.K, bits);
      const Attended run(b, s, qkv, whole_sequences(s));
      const auto cached = cached_attention(b, b.stream, qkv, s, pieces(s));
      for (auto n = kToken; n < (part == 0 ? kToken + 1 : s.T); ++n) {
        const auto element = n * s.H * s.K;  // of the first head
        EXPECT_TRUE(std::isnan(get(run.out, element))) << "out of token " << n;
        EXPECT_TRUE(std::isnan(cached[static_cast<std::size_t>(element)])) << "cached, token " << n;
        EXPECT_EQ(std::isnan(get(run.lse, n)), part != 3) << "lse of token " << n;
        EXPECT_TRUE(std::isnan(get(run.dqkv, n * 4 * s.K))) << "dq of token " << n;
      }
      for (std::int64_t n = 0; n <= kToken; ++n)
        EXPECT_TRUE(std::isnan(get(run.dqkv, (n * 4 + 2) * s.K))) << "dk of token " << n;
    }
}

// Not of a key: a score of -inf is a key that is left out.
TEST_P(Attention, an_infinity_makes_no_number) {
  const AttentionShape s{1, 90, 2, 1, 32};
  for (const std::uint32_t bits : {0x7f800000u, 0xff800000u})
    for (const int part : {0, 3}) {
      Bench b;
      const auto qkv = b.random(s.qkv(), GetParam());
      set_bits(qkv, (s.T - 1) * 4 * s.K + part * s.K, bits);
      const Attended run(b, s, qkv, whole_sequences(s));
      EXPECT_FALSE(std::isfinite(get(run.out, (s.T - 1) * s.H * s.K))) << part;
    }
}

TEST_P(Attention, without_document_starts_a_sequence_is_one_document) {
  for (const auto s : kShapes) {
    Bench b;
    const auto qkv = b.random(s.qkv(), GetParam()), dout = b.random(s.out(), GetParam());
    Tensor results[2][3];
    for (int said = 0; said < 2; ++said) {
      const auto starts = said ? b.integers(whole_sequences(s), {s.B, s.T}) : Tensor{};
      const auto out = b.poisoned(s.out(), GetParam()), lse = b.poisoned(s.lse(), DType::fp32),
                 dqkv = b.poisoned(s.qkv(), GetParam());
      attention_forward(b.stream, b.arena, out, lse, qkv, starts);
      attention_backward(b.stream, b.arena, dqkv, dout, out, lse, qkv, starts);
      std::ranges::copy(std::array{out, lse, dqkv}, results[said]);
    }
    for (int i = 0; i < 3; ++i)
      expect_bitwise_equal(results[0][i], results[1][i], str("result ", i));
  }
}

TEST_P(Attention, the_first_token_sees_only_itself) {
  const AttentionShape s{2, 70, 2, 1, 32};
  Bench b;
  const auto qkv = b.random(s.qkv(), GetParam());
  const auto out = b.poisoned(s.out(), GetParam());
  const auto lse = b.poisoned(s.lse(), DType::fp32);
  attention_forward(b.stream, b.arena, out, lse, qkv, b.integers(whole_sequences(s), {s.B, s.T}));
  for (std::int64_t n = 0; n < s.tokens(); n += s.T)
    for (std::int64_t h = 0; h < s.H; ++h)
      for (std::int64_t k = 0; k < s.K; ++k)
        EXPECT_EQ(get(out, (n * s.H + h) * s.K + k),
                  get(qkv, static_cast<std::int64_t>(s.value(n, h)) + k));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(AttentionContract, what_does_not_fit_is_refused_by_name) {
  Bench b;
  const auto qkv = b.random({6, 4, 8}, DType::fp32), out = b.random({6, 2, 8}, DType::fp32);
  const auto lse = b.random({2, 2, 3}, DType::fp32);
  const auto starts = b.integers({0, 0, 0, 0, 1, 1}, {2, 3});
  const auto forward = [&](Tensor o, Tensor l, ConstTensor d) {
    return refusal([&] { attention_forward(b.stream, b.arena, o, l, qkv, d); });
  };
  EXPECT_EQ(forward(out, lse, starts), "accepted");
  EXPECT_NE(forward(out, b.random({2, 3, 2}, DType::fp32), starts)
                .find("lse is [2, 3, 2], expected [B, 2, T] with 6 tokens in all"),
            std::string::npos);
  EXPECT_NE(forward(b.random({6, 3, 8}, DType::fp32), lse, starts).find("leave 1, expected"),
            std::string::npos);
  EXPECT_NE(forward(out, lse, b.integers({0, 0, 4, 0, 1, 1}, {2, 3}))
                .find("document_start[0, 2] is 4, expected a token from 0 to 3"),
            std::string::npos);
  EXPECT_NE(forward(out, lse, b.integers({0, 0, 0}, {1, 3})).find("document_start is [1, 3]"),
            std::string::npos);
  const KvCache cache{b.random({2, 5, 1, 8}, DType::fp32), b.random({2, 5, 1, 8}, DType::fp32)};
  EXPECT_NE(refusal([&] {
              attention_cached(b.stream, b.arena, out, cache, qkv,
                               b.integers({0, 1, 2, 3, 4, 5}, {2, 3}));
            }).find("positions[1, 2] is 5, but the cache holds 5 tokens"),
            std::string::npos);
}

TEST(AttentionContract, a_measuring_stream_counts_the_scratch_and_touches_nothing) {
  for (const auto s : {AttentionShape{1, 300, 4, 2, 48}, {3, 5, 2, 2, 20}}) {
    Bench b;
    const auto qkv = b.random(s.qkv(), DType::bf16), out = b.random(s.out(), DType::bf16);
    const auto dqkv = b.copy(qkv), before = b.copy(out);
    const auto lse = b.random(s.lse(), DType::fp32);
    const auto starts = b.integers(whole_sequences(s), {s.B, s.T});
    const KvCache cache{b.random({s.B, s.T, s.G, s.K}, DType::bf16),
                        b.random({s.B, s.T, s.G, s.K}, DType::bf16)};
    FirstKeys positions;
    for (std::int32_t i = 0; i < s.tokens(); ++i)
      positions.push_back(i % static_cast<std::int32_t>(s.T));
    const auto positions_tensor = b.integers(positions, {s.B, s.T});
    Stream measuring(Device{}, "measure", Stream::Mode::measuring, 2);
    const auto peak_bytes = [&](Stream& stream, Arena scratch, int what) {
      if (what == 0) attention_forward(stream, scratch, out, lse, qkv, starts);
      if (what == 1) attention_backward(stream, scratch, dqkv, out, out, lse, qkv, starts);
      if (what == 2) attention_cached(stream, scratch, out, cache, qkv, positions_tensor);
      return scratch.peak_bytes();
    };
    const auto memory = [] { return Arena(Device{}, Arena::Memory::host, 1 << 26); };
    for (int what = 0; what < 3; ++what) {
      const auto counted = peak_bytes(measuring, Arena::measure(Device{}), what);
      expect_bitwise_equal(out, before, "out");
      expect_bitwise_equal(dqkv, qkv, "dqkv");
      EXPECT_EQ(counted, peak_bytes(b.stream, memory(), what));
      EXPECT_GT(counted, 0);
      std::copy(before.data, before.data + before.bytes(), out.data);
      std::copy(qkv.data, qkv.data + qkv.bytes(), dqkv.data);
    }
  }
}

TEST(AttentionContract, the_reference_gradient_is_the_derivative_of_the_reference) {
  const AttentionShape s{2, 5, 4, 2, 3};
  Bench b;
  auto qkv = doubles(b.random(s.qkv(), DType::fp32));
  const auto dout = doubles(b.random(s.out(), DType::fp32));
  const auto starts = documents(s, 3);
  const auto loss = [&] { return reference::dot(dout, reference::attention(qkv, starts, s).out); };
  expect_close(reference::attention_gradient(dout, qkv, starts, s), finite_differences(qkv, loss),
               1e-7, "dqkv");
}

INSTANTIATE_TEST_SUITE_P(types, Attention, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::attention_test
