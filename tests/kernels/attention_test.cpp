#include "kernels/attention.h"

#include <algorithm>
#include <bit>
#include <gtest/gtest.h>
#include <limits>

#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference_attention.h"

namespace lockstep::testing::attention_test {

using reference::AttentionShape;
using reference::FirstKeys;

FirstKeys whole_sequences(AttentionShape s) {
  return FirstKeys(static_cast<std::size_t>(s.tokens()), 0);
}

class Attention : public ::testing::TestWithParam<DType> {};

// Forward and backward of one qkv.
struct Attended {
  Attended(Bench& b, AttentionShape s, ConstTensor qkv, bool says_starts = true)
      : out(b.poisoned(s.out(), qkv.dtype)),
        lse(b.poisoned(s.lse(), DType::fp32)),
        dqkv(b.poisoned(s.qkv(), qkv.dtype)) {
    b.draws = 100;  // the same dout again
    const auto dout = b.random(s.out(), qkv.dtype);
    const auto starts = says_starts ? b.integers(whole_sequences(s), {s.B, s.T}) : Tensor{};
    attention_forward(b.stream, b.arena, out, lse, qkv, starts);
    attention_backward(b.stream, b.arena, dqkv, dout, out, lse, qkv, starts);
  }

  Tensor out, lse, dqkv;
};

// A term that all scores of a query share cancels out.
TEST_P(Attention, equal_scores_of_any_size_give_the_mean_of_the_values) {
  const AttentionShape s{1, 100, 2, 1, 16};
  for (const double score : {-8192.0, -1024.0, 1024.0, 8192.0}) {
    Bench b;
    const auto qkv = b.random(s.qkv(), GetParam());
    for (std::int64_t n = 0; n < s.T; ++n)
      for (std::int64_t i = 0; i < 3 * s.K; ++i)  // queries 2, keys score / 8: 16 products over 4
        Bench::set(qkv, n * 4 * s.K + i, i < 2 * s.K ? 2 : score / 8);
    const Attended run(b, s, qkv);
    const auto expected = reference::attention(doubles(qkv), whole_sequences(s), s);
    EXPECT_NEAR(expected.lse[0], score, 1e-9);
    expect_close(run.out, expected.out, tolerance(GetParam()), "out");
    expect_close(run.lse, expected.lse, tolerance(DType::fp32), "lse");
  }
}

// The output of one sequence with a KV cache: prefill, decoding of several tokens at once, then
// decoding of one token at a time.
Tensor cached_attention(Bench& b, ConstTensor qkv, AttentionShape s) {
  const KvCache cache{b.poisoned({1, s.T + 3, s.G, s.K}, qkv.dtype),
                      b.poisoned({1, s.T + 3, s.G, s.K}, qkv.dtype)};
  const auto out = b.poisoned(s.out(), qkv.dtype);
  for (std::int64_t done = 0, count = s.T - 31; done < s.T; done += count) {
    if (done > 0) count = done >= s.T - 7 ? 1 : done < s.T - 16 ? 9 : 3;
    std::vector<std::int32_t> positions;
    for (std::int64_t i = 0; i < count; ++i)
      positions.push_back(static_cast<std::int32_t>(done + i));
    attention_cached(b.stream, b.arena, out.rows(done, count), cache, qkv.rows(done, count),
                     b.integers(positions, {1, count}));
  }
  return out;
}

void set_bits(ConstTensor t, std::int64_t i, std::uint32_t bits) {
  auto* data = const_cast<std::byte*>(t.data);
  if (t.dtype == DType::bf16)
    reinterpret_cast<BFloat16*>(data)[i].bits = static_cast<std::uint16_t>(bits >> 16);
  else
    reinterpret_cast<float*>(data)[i] = std::bit_cast<float>(bits);
}

// One element of q, k or v of one token is NaN, with the bits of debug builds, of fp8 or of a quiet
// NaN.
TEST_P(Attention, a_nan_reaches_every_result_that_depends_on_it) {
  const AttentionShape s{1, 150, 2, 1, 32};
  constexpr std::int64_t kToken = 70;
  for (const std::uint32_t bits : {0xffffffffu, 0x7fffffffu, 0x7fc00000u})
    for (const int part : {0, 2, 3}) {  // the first query head, the key, the value
      SCOPED_TRACE(str(std::hex, bits, " in head ", part));
      Bench b;
      const auto qkv = b.random(s.qkv(), GetParam());
      set_bits(qkv, (kToken * 4 + part) * s.K, bits);
      const Attended run(b, s, qkv);
      const auto cached = cached_attention(b, qkv, s);
      for (auto n = kToken; n < (part == 0 ? kToken + 1 : s.T); ++n) {
        const auto element = n * s.H * s.K;  // of the first head
        EXPECT_TRUE(std::isnan(get(run.out, element))) << "out of token " << n;
        EXPECT_TRUE(std::isnan(get(cached, element))) << "cached, token " << n;
        EXPECT_EQ(std::isnan(get(run.lse, n)), part != 3) << "lse of token " << n;
        EXPECT_TRUE(std::isnan(get(run.dqkv, n * 4 * s.K))) << "dq of token " << n;
      }
      for (std::int64_t n = 0; n <= kToken; ++n)
        EXPECT_TRUE(std::isnan(get(run.dqkv, (n * 4 + 2) * s.K))) << "dk of token " << n;
    }
}

// Infinite keys are not tested, because a score of -inf masks its key.
TEST_P(Attention, an_infinite_query_or_value_makes_the_output_not_finite) {
  const AttentionShape s{1, 90, 2, 1, 32};
  for (const std::uint32_t bits : {0x7f800000u, 0xff800000u})
    for (const int part : {0, 3}) {
      Bench b;
      const auto qkv = b.random(s.qkv(), GetParam());
      set_bits(qkv, (s.T - 1) * 4 * s.K + part * s.K, bits);
      const Attended run(b, s, qkv);
      EXPECT_FALSE(std::isfinite(get(run.out, (s.T - 1) * s.H * s.K))) << part;
    }
}

TEST_P(Attention, without_document_starts_a_sequence_is_one_document) {
  for (const AttentionShape s :
       {AttentionShape{1, 1, 1, 1, 1}, {2, 65, 2, 1, 64}, {1, 300, 2, 1, 36}}) {
    Bench b;
    const auto qkv = b.random(s.qkv(), GetParam());
    const Attended said(b, s, qkv), unsaid(b, s, qkv, false);
    expect_bitwise_equal(unsaid.out, said.out, "out");
    expect_bitwise_equal(unsaid.lse, said.lse, "lse");
    expect_bitwise_equal(unsaid.dqkv, said.dqkv, "dqkv");
  }
}

TEST_P(Attention, the_first_token_attends_only_to_itself) {
  const AttentionShape s{2, 70, 2, 1, 32};
  Bench b;
  const auto qkv = b.random(s.qkv(), GetParam());
  const Attended run(b, s, qkv);
  for (std::int64_t n = 0; n < s.tokens(); n += s.T)
    for (std::int64_t h = 0; h < s.H; ++h)
      for (std::int64_t k = 0; k < s.K; ++k)
        EXPECT_EQ(get(run.out, (n * s.H + h) * s.K + k),
                  get(qkv, static_cast<std::int64_t>(s.value(n, h)) + k));
}

TEST(AttentionContract, mismatched_arguments_are_rejected_by_name) {
  Bench b;
  const auto qkv = b.random({6, 4, 8}, DType::fp32), out = b.random({6, 2, 8}, DType::fp32);
  const auto lse = b.random({2, 2, 3}, DType::fp32), other = b.random({2, 3, 2}, DType::fp32);
  const auto three = b.random({6, 3, 8}, DType::fp32);
  const auto starts = b.integers({0, 0, 0, 0, 1, 1}, {2, 3});
  const auto far = b.integers({0, 0, 4, 0, 1, 1}, {2, 3}), few = b.integers({0, 0, 0}, {1, 3});
  const auto refused = [&](const char* why, Tensor o, Tensor l, ConstTensor d) {
    expect_refused(why, [&] { attention_forward(b.stream, b.arena, o, l, qkv, d); });
  };
  attention_forward(b.stream, b.arena, out, lse, qkv, starts);
  refused("lse is [2, 3, 2], expected [B, 2, T] with 6 tokens in all", out, other, starts);
  refused("leave 1, expected", three, lse, starts);
  refused("document_start[0, 2] is 4, expected a token from 0 to 3", out, lse, far);
  refused("document_start is [1, 3]", out, lse, few);
  const KvCache cache{b.random({2, 5, 1, 8}, DType::fp32), b.random({2, 5, 1, 8}, DType::fp32)};
  const auto positions = b.integers({0, 1, 2, 3, 4, 5}, {2, 3});
  expect_refused("positions[1, 2] is 5, but the cache holds 5 tokens",
                 [&] { attention_cached(b.stream, b.arena, out, cache, qkv, positions); });
}

TEST(AttentionContract, the_reference_gradient_is_the_derivative_of_the_reference) {
  const AttentionShape s{2, 5, 4, 2, 3};
  Bench b;
  auto qkv = doubles(b.random(s.qkv(), DType::fp32));
  const auto dout = doubles(b.random(s.out(), DType::fp32));
  const FirstKeys starts{0, 0, 2, 2, 4, 0, 1, 2, 6, 2};  // token 3 of sequence 1 attends to no key
  const auto loss = [&] { return reference::dot(dout, reference::attention(qkv, starts, s).out); };
  expect_close(reference::attention_gradient(dout, qkv, starts, s), finite_differences(qkv, loss),
               1e-7, "dqkv");
}

INSTANTIATE_TEST_SUITE_P(types, Attention, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::attention_test
