// This file computes attention to a cache. Many new tokens (prefill) are processed in blocks, as in
// training. Few new tokens (decode) read the cache once, which takes most of their time. Keys are
// cut into spans; a span gives a partial softmax for each head of a new token. The partials are
// joined in order. Spans have a fixed length, so the bits do not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/integer.h"
#include "kernels/attention.h"

#include "kernels/cpu_begin.h"  // after every other include

#include "kernels/attention_online_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

constexpr std::int64_t kFewTokens = 8;  // with fewer, blocks would leave most lanes empty
constexpr std::int64_t kSpan = 256;     // keys

struct CachedSizes {
  CachedSizes(Tensor out, const KvCache& cache, ConstTensor positions)
      : B(positions.shape[0]),
        n(positions.shape[1]),
        C(cache.keys.shape[1]),
        H(out.shape[1]),
        G(cache.keys.shape[2]),
        K(out.shape[2]),
        heads(H / G),
        spans(divide_up(C, kSpan)) {}
  std::int64_t B, n, C, H, G, K, heads, spans;
};

// Returns the sum over the lanes of each vector, as a vector.
template <int S = kWidth / 2>
LOCKSTEP_INLINE Vector lane_sums(Vector (&rows)[kWidth]) {
#pragma GCC unroll 8
  for (int r = 0; r < S; ++r) {
    auto a = (WordVector)rows[r], b = (WordVector)rows[r + S];
    exchange<S>(a, b, std::make_integer_sequence<int, kWidth>{});
    rows[r] = (Vector)a + (Vector)b;
  }
  if constexpr (S > 1) return lane_sums<S / 2>(rows);
  return rows[0];
}

// Partial is the softmax of a query head over one span: its maximum, its sum, and out in units of
// 2^maximum.
struct Partial {
  explicit Partial(float* memory) : maximum(memory), sum(memory + 1), out(memory + kPanel) {}
  static std::int64_t floats(std::int64_t K) { return kPanel + round_up(K, kPanel); }
  float *maximum, *sum, *out;
};

// SpanTask is the kv heads [first, last) of a sequence over one span of its keys. All heads of
// kStep keys are read before the next keys, so that the cache is read nearly in memory order.
template <class E>
struct SpanTask {
  const E *q, *k, *v;           // of head 0: the first new token, the span's first key
  float* p;                     // [n, H, kSpan], scratch
  float* partials;              // of the first new token's head 0
  std::int64_t partial_stride;  // from head to head
  const std::int32_t* positions;
  std::int64_t begin, keys;  // the span: its first key, number of keys to read
  std::int64_t first, last;
};

constexpr std::int64_t kStep = 16;      // keys between two prefetches
constexpr int kManyHeads = kWidth / 4;  // of a group at once, if it has several

// Computes p[head][.] = q . k for the heads [h, h + Heads) of the group g and the keys [j,
// j + kWidth / Heads). Past the last head or key, it uses the last one again.
template <int Heads, class Word, class E>
LOCKSTEP_INLINE void span_scores(const SpanTask<E>& task, const CachedSizes& s, std::int64_t token,
                                 std::int64_t g, std::int64_t h, std::int64_t j) {
  constexpr std::int64_t kKeys = kWidth / Heads;
  constexpr int kElements = kWidth * kPerWord<Word>;
  const auto end = (g + 1) * s.heads;
  const E *q[Heads], *k[kKeys];
  for (int r = 0; r < Heads; ++r)
    q[r] = task.q + (token * (s.H + 2 * s.G) + std::min(h + r, end - 1)) * s.K;
  for (int i = 0; i < kKeys; ++i)
    k[i] = task.k + (std::min(j + i, task.keys - 1) * s.G + g) * s.K;
  Vector sums[kWidth] = {};
  const auto add = [&](std::int64_t at, std::int64_t elements) {
    WordVector left[Heads];
#pragma GCC unroll 16
    for (int r = 0; r < Heads; ++r)
      left[r] = row_words<Word>(q[r] + at, elements);
#pragma GCC unroll 16
    for (int i = 0; i < kKeys; ++i) {
      const auto right = row_words<Word>(k[i] + at, elements);
#pragma GCC unroll 16
      for (int r = 0; r < Heads; ++r)
        sums[r * kKeys + i] = multiply_words<Word>(sums[r * kKeys + i], left[r], right);
    }
  };
  std::int64_t at = 0;
  for (; at + kElements <= s.K; at += kElements)
    add(at, kElements);
  if (at < s.K) add(at, s.K - at);
  alignas(64) float x[kWidth];
  write(x, lane_sums(sums));
  for (int r = 0; r < Heads && h + r < end; ++r)
    __builtin_memcpy(task.p + (token * s.H + h + r) * kSpan + j, x + r * kKeys,
                     sizeof(float) * kKeys);
}

// Turns the scores of a head into exponentials, 0 for keys that the token does not see.
inline void span_softmax(Partial partial, float* p, std::int64_t visible, std::int64_t keys,
                         float scale) {
  std::fill(p + visible, p + round_up(keys, kWidth), -INFINITY);
  Vector high = Vector{} + kLow, sum{};
  for (std::int64_t j = 0; j < keys; j += kWidth)
    high = larger(high, read<Vector>(p + j) * scale);
  for (int i = 1; i < kWidth; ++i)
    high[0] = std::max(high[0], high[i]);
  for (std::int64_t j = 0; j < keys; j += kWidth) {
    const Vector x = exp2(read<Vector>(p + j) * scale - high[0]);
    write(p + j, x);
    sum += x;
  }
  *partial.maximum = high[0];
  *partial.sum = 0;
  for (int i = 0; i < kWidth; ++i)
    *partial.sum += sum[i];
}

// Adds p v to out for the heads [h, h + Heads) of the group g and the keys [j, j + kStep), in the
// columns of `Vectors` vectors from c on. Heads past the last one add nothing.
template <int Heads, int Vectors, class E>
LOCKSTEP_INLINE void span_values(const SpanTask<E>& task, const CachedSizes& s, std::int64_t token,
                                 std::int64_t g, std::int64_t h, std::int64_t j, std::int64_t c) {
  const auto end = (g + 1) * s.heads;
  const float* p[Heads];
  float* out[Heads];
  Vector sums[Heads][Vectors];
#pragma GCC unroll 4
  for (int r = 0; r < Heads; ++r) {
    const auto row = token * s.H + std::min(h + r, end - 1);
    p[r] = task.p + row * kSpan;
    out[r] = Partial(task.partials + row * task.partial_stride).out + c;
#pragma GCC unroll 4
    for (int i = 0; i < Vectors; ++i)
      sums[r][i] = read<Vector>(out[r] + i * kWidth);
  }
  const E* v = task.v + (j * s.G + g) * s.K + c;
  const auto last = std::min(j + kStep, task.keys);
  for (auto key = j; key < last; ++key, v += s.G * s.K) {
    Vector right[Vectors];
#pragma GCC unroll 4
    for (int i = 0; i < Vectors; ++i)
      right[i] = (Vector)row_words<float>(v + i * kWidth, Vectors > 1 ? kWidth : s.K - c);
#pragma GCC unroll 4
    for (int r = 0; r < Heads; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < Vectors; ++i)
        sums[r][i] += p[r][key] * right[i];
  }
#pragma GCC unroll 4
  for (int r = 0; r < Heads; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < Vectors; ++i)
      write(out[r] + i * kWidth, sums[r][i]);
}

// Prefetches the step of keys or values after the current one.
template <class E>
LOCKSTEP_INLINE void prefetch_step(const E* rows, const CachedSizes& s, std::int64_t g) {
  for (std::int64_t i = kStep; i < 2 * kStep; ++i)
    for (std::int64_t k = 0; k < s.K; k += 64 / static_cast<std::int64_t>(sizeof(E)))
      __builtin_prefetch(rows + (i * s.G + g) * s.K + k, 0, 2);
}

template <int Heads, class E, class Word = typename WordOf<E>::type>
void attend_span(const SpanTask<E>& task, const CachedSizes& s) {
  // Calls f(token, g, first head, first key) for each step of keys, in the order of the cache.
  const auto for_steps = [&](const E* rows, auto&& f) {
    for (std::int64_t j = 0; j < task.keys; j += kStep)
      for (auto g = task.first; g < task.last; ++g) {
        prefetch_step(rows + j * s.G * s.K, s, g);
        for (std::int64_t token = 0; token < s.n; ++token)
          for (auto h = g * s.heads; h < (g + 1) * s.heads; h += Heads)
            f(token, g, h, j);
      }
  };
  for_steps(task.k, [&](auto token, auto g, auto h, auto j) {
    for (std::int64_t i = 0; i < kStep; i += kWidth / Heads)
      span_scores<Heads, Word>(task, s, token, g, h, j + i);
  });
  const float scale = kLog2E / std::sqrt(static_cast<float>(s.K));
  for (std::int64_t token = 0; token < s.n; ++token)
    for (auto h = task.first * s.heads; h < task.last * s.heads; ++h) {
      const auto row = token * s.H + h;
      const Partial partial(task.partials + row * task.partial_stride);
      const auto visible =
          std::clamp<std::int64_t>(task.positions[token] + 1 - task.begin, 0, task.keys);
      span_softmax(partial, task.p + row * kSpan, visible, task.keys, scale);
      std::fill_n(partial.out, round_up(s.K, kPanel), 0.0f);
    }
  for_steps(task.v, [&](auto token, auto g, auto h, auto j) {
    constexpr std::int64_t kVectors = 4;
    std::int64_t c = 0;
    for (; c + kVectors * kWidth <= s.K; c += kVectors * kWidth)
      span_values<Heads, kVectors>(task, s, token, g, h, j, c);
    for (; c < s.K; c += kWidth)
      span_values<Heads, 1>(task, s, token, g, h, j, c);
  });
}

// Joins the partials of the spans into out. The first partial receives the sums.
template <class E>
void join_spans(E* out, float* partials, std::int64_t spans, std::int64_t K) {
  const auto floats = Partial::floats(K);
  float high = kLow;
  for (std::int64_t s = 0; s < spans; ++s)
    high = std::max(high, *Partial(partials + s * floats).maximum);
  const Partial all(partials);
  for (std::int64_t s = 0; s < spans; ++s) {
    const Partial one(partials + s * floats);
    const float weight = exp2(Vector{} + (*one.maximum - high))[0];
    *all.sum = (s == 0 ? 0.0f : *all.sum) + weight * *one.sum;
    for (std::int64_t k = 0; k < K; k += kWidth)
      write(all.out + k,
            (s == 0 ? Vector{} : read<Vector>(all.out + k)) + weight * read<Vector>(one.out + k));
  }
  store_rows(out, 0, all.out, 0, 1, K, 1.0f / *all.sum);
}

template <class E>
void append(Stream& stream, const KvCache& cache, ConstTensor qkv, ConstTensor positions,
            const CachedSizes& s) {
  const auto all = s.H + 2 * s.G, row = s.G * s.K;
  stream.parallel_ranges(s.B * s.n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      const auto at = (i / s.n * s.C + positions.as<std::int32_t>()[i]) * row;
      const E* token = qkv.as<E>() + (i * all + s.H) * s.K;
      std::copy_n(token, row, cache.keys.as<E>() + at);
      std::copy_n(token + row, row, cache.values.as<E>() + at);
    }
  });
}

template <class E>
void decode(Stream& stream, Tensor memory, Tensor partials, Tensor out, const KvCache& cache,
            ConstTensor qkv, const std::int32_t* positions, const CachedSizes& s) {
  const auto floats = Partial::floats(s.K);  // of partials [token, head, span]
  const auto end = std::int64_t{1} + *std::max_element(positions, positions + s.B * s.n);
  const auto spans = divide_up(end, kSpan);
  // Kv heads per task: one if all would give too few tasks for the threads, else all.
  const auto group = s.B * spans < std::int64_t{4} * stream.threads() ? 1 : s.G;
  const auto groups = s.G / group;
  stream.parallel_for(s.B * spans * groups, [&](std::int64_t task, int thread) {
    const auto b = task / (spans * groups), span = task / groups % spans, g = task % groups;
    const auto token = b * s.n, begin = span * kSpan;
    const auto keys =
        std::int64_t{1} - begin + *std::max_element(positions + token, positions + token + s.n);
    if (keys <= 0) return;
    const auto at = (b * s.C + begin) * s.G * s.K;
    (s.heads == 1
         ? attend_span<1, E>
         : attend_span<kManyHeads, E>)({.q = qkv.as<E>() + token * (s.H + 2 * s.G) * s.K,
                                        .k = cache.keys.as<E>() + at,
                                        .v = cache.values.as<E>() + at,
                                        .p = memory.as<float>() + thread * s.n * s.H * kSpan,
                                        .partials = partials.as<float>() +
                                                    (token * s.H * s.spans + span) * floats,
                                        .partial_stride = s.spans * floats,
                                        .positions = positions + token,
                                        .begin = begin,
                                        .keys = std::min(keys, kSpan),
                                        .first = g * group,
                                        .last = (g + 1) * group},
                                       s);
  });
  stream.parallel_for(s.B * s.n, [&](std::int64_t token, int) {
    for (auto h = token * s.H; h < (token + 1) * s.H; ++h)
      join_spans(out.as<E>() + h * s.K, partials.as<float>() + h * s.spans * floats,
                 positions[token] / kSpan + 1, s.K);
  });
}

template <class E>
void prefill(Stream& stream, Tensor memory, Tensor out, const KvCache& cache, ConstTensor qkv,
             const std::int32_t* positions, const CachedSizes& s, std::int64_t blocks) {
  const auto all = s.H + 2 * s.G, chunk = blocks * kBlock, chunks = divide_up(s.n, chunk);
  stream.parallel_for(chunks * s.B * s.G, [&](std::int64_t task, int thread) {
    const auto b = task % (s.B * s.G) / s.G, g = task % s.G;
    const auto begin = (chunks - 1 - task / (s.B * s.G)) * chunk;  // chunks with most keys first
    attend_online<E>({.q = qkv.as<E>() + (b * s.n * all + g * s.heads) * s.K,
                      .k = cache.keys.as<E>() + (b * s.C * s.G + g) * s.K,
                      .v = cache.values.as<E>() + (b * s.C * s.G + g) * s.K,
                      .out = out.as<E>() + (b * s.n * s.H + g * s.heads) * s.K,
                      .lse = nullptr,
                      .q_stride = all * s.K,
                      .kv_stride = s.G * s.K,
                      .out_stride = s.H * s.K,
                      .lse_stride = 0,
                      .first = nullptr,
                      .last = positions + b * s.n,
                      .heads = s.heads,
                      .begin = begin,
                      .count = std::min(chunk, s.n - begin),
                      .K = s.K},
                     {memory.rows(thread, 1).data});
  });
}

}  // namespace

void attention_cached(Stream& stream, Arena& scratch, Tensor out, const KvCache& cache,
                      ConstTensor qkv, ConstTensor positions) {
  const CachedSizes s(out, cache, positions);
  with_float(qkv.dtype, [&]<class E>(E) {
    const Arena::Scope scope(scratch);
    const auto last = positions.as<std::int32_t>();
    if (s.n < kFewTokens) {
      const auto memory =
          scratch.allocate("attention", DType::fp32, {stream.threads(), s.n * s.H * kSpan});
      const auto partials = scratch.allocate("attention_partials", DType::fp32,
                                             {s.B * s.n * s.H * s.spans, Partial::floats(s.K)});
      if (stream.is_measuring()) return;
      append<E>(stream, cache, qkv, positions, s);
      decode<E>(stream, memory, partials, out, cache, qkv, last, s);
    } else {
      const auto blocks = task_blocks(s.B * s.G, s.heads, s.n, stream.threads());
      const auto memory = scratch.allocate(
          "attention", DType::uint8, {stream.threads(), online_bytes<E>(blocks * s.heads, s.K)});
      if (stream.is_measuring()) return;
      append<E>(stream, cache, qkv, positions, s);
      prefill<E>(stream, memory, out, cache, qkv, last, s, blocks);
    }
  });
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
