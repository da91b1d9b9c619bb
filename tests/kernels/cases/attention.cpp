#include "kernels/attention.h"

#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference_attention.h"

namespace lockstep::testing::attention_cases {

using reference::AttentionShape;
using reference::FirstKeys;

// Sizes: B, T, H, G, K, the number of first tokens of a sequence that attend to no key, and 1 for
// large scores.
AttentionShape shape_of(const Sizes& s) {
  return {s[0], s[1], s[2], s[3], s[4]};
}
// The fixed shapes have:
//   - T = 1, T next to a multiple of any tile, and odd K;
//   - one kv head, one per query head, and numbers between;
//   - 530 tokens, whose backward takes two passes with 3 threads, else one;
//   - no key for some tokens of a block, for all of several blocks, and for a whole sequence;
//   - scores up to +-1e3: the running maximum jumps by hundreds, most exponentials are 0, and many
//     rows of the softmax have a single 1.
const std::vector<Sizes> kFixed{
    {1, 1, 1, 1, 1, 0, 0},      {2, 1, 3, 1, 16, 0, 0},   {1, 2, 2, 2, 5, 0, 0},
    {3, 17, 4, 2, 32, 0, 0},    {2, 65, 2, 1, 64, 0, 0},  {1, 127, 2, 2, 80, 0, 0},
    {1, 200, 3, 1, 128, 0, 0},  {2, 96, 4, 4, 48, 0, 0},  {1, 300, 2, 1, 36, 0, 0},
    {1, 130, 2, 1, 256, 0, 0},  {1, 70, 4, 2, 200, 0, 0}, {1, 530, 4, 2, 48, 280, 0},
    {2, 65, 2, 1, 64, 30, 0},   {2, 65, 2, 1, 64, 65, 0}, {1, 300, 3, 1, 36, 140, 0},
    {1, 300, 3, 1, 36, 300, 0}, {1, 300, 2, 1, 36, 0, 1}, {2, 70, 2, 2, 64, 0, 1}};

// On a GPU, these shapes are for the kernels without tensor cores, whose blocks have 32 tokens.
Sizes draw_sizes(Draw& d) {
  for (;;) {
    const auto T = d.size(most({.cpu = 700, .simulated = 75, .real = 1000})),
               G = d.between(1, most({.cpu = 3, .simulated = 2, .real = 2}));
    const auto K = !is_on_gpu() ? d.size(256) : d.coin() ? 8 * d.between(1, 32) : d.size(150);
    const Sizes s{d.between(1, most({.cpu = 3, .simulated = 2, .real = 2})),
                  T,
                  G * d.between(1, most({.cpu = 5, .simulated = 3, .real = 3})),
                  G,
                  K,
                  0,
                  0};
    if (is_on_gpu() || s[0] * T * T * s[2] * K <= 1 << 22) return s;
  }
}
// Shapes for the kernels with tensor cores, whose blocks have 64 or 128 tokens. Some blocks of
// queries, and some of keys, have no step.
const std::vector<Sizes> kTensorCores = [] {
  std::vector<Sizes> sizes{
      {2, 140, 2, 1, 64, 0, 0},    {1, 300, 1, 1, 64, 0, 0},   {2, 1, 2, 2, 64, 0, 0},
      {1, 128, 3, 1, 64, 0, 0},    {1, 64, 2, 2, 128, 0, 0},   {2, 75, 2, 1, 128, 0, 0},
      {1, 200, 1, 1, 128, 0, 0},   {1, 300, 2, 1, 64, 135, 0}, {1, 300, 2, 1, 64, 300, 0},
      {2, 140, 1, 1, 128, 135, 0}, {2, 140, 1, 1, 128, 140, 0}};
  if (most({.real = 1}) > 0) {
    sizes.push_back({2, 3001, 8, 2, 64, 0, 0});
    sizes.push_back({2, 4096, 6, 2, 128, 0, 0});
  }
  return sizes;
}();

// Documents draws document_start: whole sequences, or documents of up to a drawn number of tokens;
// some tokens attend to no key. If `given` is false, the operand is absent.
struct Documents {
  Documents(Operator& o, const AttentionShape& s) {
    const auto blind = o.size[5];
    const bool large = o.size[6] == 1;
    const bool divided = blind > 0 || o.coin(), is_long = blind > 0 || large || o.coin();
    given = divided || is_long || blind > 0;
    const auto longest = o.is_fixed() ? is_long ? 150 : 5 : o.draw.between(1, s.T);
    const bool some_blind = blind > 0 || (!o.is_fixed() && given && o.draw.between(0, 2) == 0);
    for (std::int64_t b = 0; b < s.B; ++b)
      for (std::int64_t t = 0, start = 0, length = o.draw.between(1, longest); t < s.T; ++t) {
        if (divided && t == start + length) {
          start = t;
          length = o.draw.between(1, longest);
        }
        const auto first = t < blind ? s.T : some_blind && t % 7 == 3 ? t + 1 : start;
        starts.push_back(static_cast<std::int32_t>(first));
      }
    if (given) operand = o.integers(starts, {s.B, s.T});
  }
  bool given;
  FirstKeys starts;
  Operand operand;
};
float scale_of(const Operator& o) {
  return o.size[6] == 1 ? 30.0f : 2.0f;
}
// An fp32 score of 1e3 is off by about 1e-4, and so is its exponential.
double relative_of(const Operator& o) {
  return tolerance(o.dtype) + (o.size[6] == 1 ? 4e-4 : 0);
}

void make_forward(Operator& o) {
  const auto s = shape_of(o.size);
  const bool large = o.size[6] == 1;
  const Documents documents(o, s);
  const auto qkv = o.in(s.qkv(), scale_of(o));
  const auto out = o.out("out", s.out(), {.relative = relative_of(o)});
  const auto lse = o.out("lse", s.lse(), DType::fp32, {.drawn_scale = 1, .gpu_scale = 1});
  const auto absmax = o.absmax_of(out);
  o.takes_scratch = !is_on_gpu();
  o.call = [=](const On& on) {
    attention_forward(on.stream, on.scratch, on(out), on(lse), on(qkv), on(documents.operand),
                      on(absmax));
  };
  o.expect_on_cpu = [=](const Results& r) {
    const auto expected = reference::attention(r[qkv], documents.starts, s);
    r.close(out, expected.out);
    r.close(lse, expected.lse);
    if (!large || documents.starts[3] == s.T) return;
    const auto [low, high] = std::minmax_element(expected.lse.begin(), expected.lse.end());
    EXPECT_LT(*low, -100);
    EXPECT_GT(*high, 700);
  };
}

// The bounds of dq, dk and dv are relative to the largest element of each, but at least 1: with
// short documents most elements are 0. dq and dk have twice the tolerance, because they come from
// the difference of dout v and dout out, which has the rounding of out.
void make_backward(Operator& o) {
  const auto s = shape_of(o.size);
  const Documents documents(o, s);
  const auto qkv = o.input(o.b.random(s.qkv(), o.dtype, scale_of(o)));
  const auto dout = o.input(o.b.random(s.out(), o.dtype));
  const auto attended = o.b.poisoned(s.out(), o.dtype);
  const auto sums = o.b.poisoned(s.lse(), DType::fp32);
  attention_forward(o.b.stream, o.b.arena, attended, sums, o.tensor(qkv),
                    documents.given ? o.tensor(documents.operand) : Tensor{});
  const auto out = o.input(attended), lse = o.input(sums), dqkv = o.out("dqkv", s.qkv());
  const auto bound = [&](double factor) {
    return Bound{.drawn_scale = 1,
                 .fixed_scale = 1,
                 .gpu_scale = 1,
                 .relative = factor * relative_of(o),
                 .gpu_relative = factor * tolerance(o.dtype)};
  };
  o.takes_scratch = true;
  o.divide(dqkv, {{"dq", 0, s.H * s.K, bound(2)},
                  {"dk", s.H * s.K, s.G * s.K, bound(2)},
                  {"dv", (s.H + s.G) * s.K, s.G * s.K, bound(1)}});
  o.call = [=](const On& on) {
    attention_backward(on.stream, on.scratch, on(dqkv), on(dout), on(out), on(lse), on(qkv),
                       on(documents.operand));
  };
  o.expect_on_cpu = [=](const Results& r) {
    r.close(dqkv, reference::attention_gradient(r[dout], r[qkv], documents.starts, s));
  };
}

const bool kForward = register_for_types(
    {.name = "AttentionForward", .fixed = kFixed, .draw_sizes = draw_sizes, .make = make_forward});
const bool kBackward = register_for_types({.name = "AttentionBackward",
                                           .fixed = kFixed,
                                           .draw_sizes = draw_sizes,
                                           .make = make_backward});
const bool kForwardOnTensorCores = register_operator({.name = "TensorCoresAttentionForward",
                                                      .on_gpu = kTensorCores,

                                                      .make = make_forward,
                                                      .dtype = DType::bf16});
const bool kBackwardOnTensorCores = register_operator({.name = "TensorCoresAttentionBackward",
                                                       .on_gpu = kTensorCores,

                                                       .make = make_backward,
                                                       .dtype = DType::bf16});

// Sizes: B, `there`, `count`, H, G, K. B sequences have up to `there` tokens in the cache and get
// `count` more: prefill, or decoding of one or a few tokens. The shapes have more and fewer tokens
// than a span of the cache (256 keys), and one or several query heads per kv head. The cache after
// the last token holds NaN or stale values.
const std::vector<Sizes> kCached{
    {2, 0, 59, 6, 2, 32},   {2, 59, 9, 6, 2, 32},   {2, 83, 1, 6, 2, 32},   {1, 0, 41, 3, 1, 20},
    {1, 38, 3, 3, 1, 20},   {1, 0, 529, 1, 1, 80},  {1, 529, 9, 1, 1, 80},  {1, 559, 1, 1, 1, 80},
    {1, 0, 269, 5, 1, 132}, {1, 269, 9, 5, 1, 132}, {1, 299, 1, 5, 1, 132}, {1, 0, 70, 2, 1, 256},
    {1, 39, 9, 2, 1, 256},  {1, 69, 1, 2, 1, 256}};
const std::vector<Sizes> kCachedOnTensorCores{
    {2, 0, 130, 2, 1, 64},  {2, 130, 1, 2, 1, 64},  {2, 131, 5, 2, 1, 64},  {2, 136, 10, 2, 1, 64},
    {1, 300, 20, 3, 1, 64}, {1, 320, 1, 3, 1, 64},  {1, 321, 4, 3, 1, 64},  {1, 325, 9, 3, 1, 64},
    {2, 0, 70, 2, 2, 128},  {2, 70, 1, 2, 2, 128},  {2, 71, 3, 2, 2, 128},  {2, 74, 12, 2, 2, 128},
    {1, 270, 9, 2, 1, 128}, {1, 279, 1, 2, 1, 128}, {1, 280, 7, 2, 1, 128}, {1, 287, 8, 2, 1, 128}};
Sizes draw_cached(Draw& d) {
  for (;;) {
    const auto s = draw_sizes(d);
    const auto there =
        d.coin() ? 0 : d.between(1, most({.cpu = 700, .simulated = 400, .real = 5000}));
    const std::int64_t counts[] = {there > 0 ? d.between(8, 20) : s[1], 1, d.between(2, 7),
                                   d.between(8, 12)};
    const auto count = counts[d.between(0, 3)];
    if (is_on_gpu() || s[0] * count * (there + count) * s[2] * s[4] <= 1 << 22)
      return {s[0], there, count, s[2], s[3], s[4]};
  }
}

void make_cached(Operator& o) {
  const auto B = o.size[0], there = o.size[1], count = o.size[2];
  const auto H = o.size[3], G = o.size[4], K = o.size[5], row = G * K;
  const auto capacity = there + count + o.draw.between(3, 300);
  const bool differ = there > 0 && o.coin(), stale = there > 0 && o.coin();
  std::vector<std::int64_t> first;  // the next position of each sequence
  std::vector<std::int32_t> places;
  for (std::int64_t b = 0; b < B; ++b) {
    first.push_back(differ ? o.draw.between(0, there) : there);
    for (std::int64_t i = 0; i < count; ++i)
      places.push_back(static_cast<std::int32_t>(first.back() + i));
  }
  const auto qkv = o.in({B * count, H + 2 * G, K}, 2);
  const auto make_cache = [&](const char* name) {
    const auto cache = o.random({B, capacity, G, K}, o.dtype, 2);
    for (std::int64_t i = 0; i < cache.elements(); ++i)
      if (const auto b = i / row / capacity;
          i / row % capacity >= (stale ? there : first[static_cast<std::size_t>(b)]))
        Bench::set(cache, i, std::nan(""));
    return o.changes(name, cache, {.same_bits = true});
  };
  const auto keys = make_cache("keys"), values = make_cache("values");
  const auto positions = o.integers(places, {B, count});
  const auto out = o.out("out", {B * count, H, K}, {.drawn_scale = 1});
  o.takes_scratch = !is_on_gpu() || count < 8;
  o.call = [=](const On& on) {
    attention_cached(on.stream, on.scratch, on(out), {on(keys), on(values)}, on(qkv),
                     on(positions));
  };
  o.expect_on_cpu = [=](const Results& r) {
    const auto added = r[qkv];
    Doubles cached[] = {r[keys], r[values]}, expected;
    for (std::int64_t b = 0; b < B; ++b) {
      const auto begin = first[static_cast<std::size_t>(b)], end = begin + count;
      const AttentionShape s{1, end, H, G, K};
      Doubles whole(static_cast<std::size_t>(s.qkv().elements()));
      std::copy_n(added.begin() + b * count * s.heads() * K, count * s.heads() * K,
                  whole.begin() + begin * s.heads() * K);
      for (std::int64_t t = 0; t < end; ++t)
        for (const int which : {0, 1}) {
          const auto in_cache = cached[which].begin() + (b * capacity + t) * row;
          const auto in_whole = whole.begin() + (t * s.heads() + H + which * G) * K;
          if (t < begin)
            std::copy_n(in_cache, row, in_whole);
          else
            std::copy_n(in_whole, row, in_cache);
        }
      FirstKeys starts(static_cast<std::size_t>(end), 0);
      std::fill_n(starts.begin(), begin, static_cast<std::int32_t>(end));  // attend to no key
      const auto all = reference::attention(whole, starts, s).out;
      expected.insert(expected.end(), all.begin() + begin * H * K, all.end());
    }
    r.close(out, expected);
    for (const int which : {0, 1}) {
      const auto cache = which == 0 ? keys : values;
      r.checked(cache);
      const auto got = r.after(cache);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_TRUE(got[i] == cached[which][i] ||
                    (std::isnan(got[i]) && std::isnan(cached[which][i])))
            << (which == 0 ? "key " : "value ") << i << " is " << got[i];
    }
  };
}
const bool kCache =
    register_for_types({.name = "AttentionCached",
                        .fixed = kCached,
                        .draw_sizes = draw_cached,
                        .make = make_cached,
                        .seeds = static_cast<int>(most({.cpu = 16, .simulated = 24, .real = 24}))});
const bool kCacheOnTensorCores = register_operator({.name = "TensorCoresAttentionCached",
                                                    .on_gpu = kCachedOnTensorCores,
                                                    .make = make_cached,
                                                    .dtype = DType::bf16});

}  // namespace lockstep::testing::attention_cases
