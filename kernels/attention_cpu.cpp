// Forward by blocks (attention_online_cpu.h); backward and cached one query at a time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/attention.h"
#include "kernels/check.h"

#include "kernels/cpu_begin.h"  // after every other include

#include "kernels/attention_online_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

template <class A, class B>
float dot(const A* a, const B* b, std::int64_t K) {
  Floats sum{};
  for_vectors(K, [&](std::int64_t k, std::int64_t n) { sum += load(a + k, n) * load(b + k, n); });
  return total(sum);
}

template <class A>
void add_scaled(float* y, float factor, const A* x, std::int64_t K) {
  for_vectors(K, [&](std::int64_t k, std::int64_t n) {
    store(y + k, load(y + k, n) + factor * load(x + k, n), n);
  });
}

template <class T, class A>
void copy_scaled(T* y, float factor, const A* x, std::int64_t K) {
  for_vectors(K, [&](std::int64_t k, std::int64_t n) { store(y + k, factor * load(x + k, n), n); });
}

// out = softmax(q k / sqrt(K)) v over `keys` rows of k and v; returns the log of the sum of
// exponents. scores: keys floats; sums: K floats.
template <class T>
float attend(T* out, const T* q, const T* k, const T* v, std::int64_t keys, std::int64_t stride,
             std::int64_t K, float* scores, float* sums) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(K));
  float high = -INFINITY, sum = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    scores[j] = scale * dot(q, k + j * stride, K);
    high = std::max(high, scores[j]);
  }
  std::fill_n(sums, K, 0.0f);
  for (std::int64_t j = 0; j < keys; ++j) {
    const float p = std::exp(scores[j] - high);
    sum += p;
    add_scaled(sums, p, v + j * stride, K);
  }
  copy_scaled(out, 1 / sum, sums, K);
  return high + std::log(sum);
}

// Blocks of queries that share one packing of the keys; what they compute does not depend on it.
std::int64_t task_blocks(std::int64_t sequences_and_heads, std::int64_t heads_in_group,
                         std::int64_t T, int threads) {
  auto blocks = std::clamp<std::int64_t>(8 / heads_in_group, 1, kMaxTaskBlocks);
  while (blocks > 1 && sequences_and_heads * T < std::int64_t{4} * threads * blocks * kBlock)
    blocks /= 2;
  return blocks;
}

template <class E>
std::int64_t online_bytes(std::int64_t states, std::int64_t K) {
  using Word = typename WordOf<E>::type;
  Carver carver;
  const OnlineScratch<Word> counted(carver, HeadSize<Word>(K), states);
  return carver.used;
}

}  // namespace

void attention_forward(Stream& stream, Arena& scratch, Tensor out, Tensor lse, ConstTensor qkv,
                       ConstTensor document_start) {
  const auto B = document_start.shape[0], T = document_start.shape[1], N = B * T;
  const auto H = out.shape[1], K = out.shape[2], all = qkv.shape[1], G = (all - H) / 2;
  const auto heads = H / G, blocks = task_blocks(B * G, heads, T, stream.threads());
  with_float(qkv.dtype, [&]<class E>(E) {
    const Arena::Scope scope(scratch);
    const auto bytes = online_bytes<E>(blocks * heads, K);
    const auto memory = scratch.allocate("attention", DType::uint8, {stream.threads(), bytes});
    if (stream.is_measuring()) return;
    const auto chunk = blocks * kBlock, chunks = (T + chunk - 1) / chunk;
    stream.parallel_for(chunks * B * G, [&](std::int64_t task, int thread) {
      const auto b = task % (B * G) / G, g = task % G;
      const auto begin = (chunks - 1 - task / (B * G)) * chunk;  // those with most keys first
      const E* tokens = qkv.as<E>() + b * T * all * K;
      attend_online<E>({.q = tokens + g * heads * K,
                        .k = tokens + (H + g) * K,
                        .v = tokens + (H + G + g) * K,
                        .out = out.as<E>() + (b * T * H + g * heads) * K,
                        .lse = lse.as<float>() + g * heads * N + b * T,
                        .q_stride = all * K,
                        .kv_stride = all * K,
                        .out_stride = H * K,
                        .lse_stride = N,
                        .first = document_start.as<std::int32_t>() + b * T,
                        .last = nullptr,
                        .heads = heads,
                        .begin = begin,
                        .count = std::min(chunk, T - begin),
                        .K = K},
                       {memory.data + thread * bytes});
    });
  });
}

void attention_backward(Stream& stream, Arena& scratch, Tensor dqkv, ConstTensor dout,
                        ConstTensor out, ConstTensor lse, ConstTensor qkv,
                        ConstTensor document_start) {
  const auto B = document_start.shape[0], T = document_start.shape[1], N = B * T;
  const auto H = out.shape[1], K = out.shape[2], all = qkv.shape[1], G = (all - H) / 2;
  const float scale = 1.0f / std::sqrt(static_cast<float>(K));
  const Arena::Scope scope(scratch);
  const auto sums =
      scratch.allocate("attention_sums", DType::fp32, {stream.threads(), (2 * T + 1) * K});
  if (stream.is_measuring()) return;
  with_float(qkv.dtype, [&]<class E>(E) {
    stream.parallel_for(B * G, [&](std::int64_t task, int thread) {
      const auto b = task / G, g = task % G;
      float* dk = sums.as<float>() + thread * (2 * T + 1) * K;
      float *dv = dk + T * K, *dq = dv + T * K;
      std::fill_n(dk, (2 * T + 1) * K, 0.0f);
      const E* keys = qkv.as<E>() + (b * T * all + H + g) * K;
      const E* values = keys + G * K;
      for (auto h = g * (H / G); h < (g + 1) * (H / G); ++h)
        for (std::int64_t t = 0; t < T; ++t) {
          const auto n = b * T + t;
          const E* q = qkv.as<E>() + (n * all + h) * K;
          const E* d = dout.as<E>() + (n * H + h) * K;
          const float delta = dot(d, out.as<E>() + (n * H + h) * K, K);
          std::fill_n(dq, K, 0.0f);
          for (std::int64_t j = document_start.as<std::int32_t>()[n]; j <= t; ++j) {
            const E* k = keys + j * all * K;
            const float p = std::exp(scale * dot(q, k, K) - lse.as<float>()[h * N + n]);
            const float ds = p * (dot(d, values + j * all * K, K) - delta) * scale;
            add_scaled(dv + j * K, p, d, K);
            add_scaled(dk + j * K, ds, q, K);
            add_scaled(dq, ds, k, K);
          }
          copy_scaled(dqkv.as<E>() + (n * all + h) * K, 1.0f, dq, K);
        }
      for (std::int64_t t = 0; t < T; ++t) {
        E* row = dqkv.as<E>() + ((b * T + t) * all + H + g) * K;
        copy_scaled(row, 1.0f, dk + t * K, K);
        copy_scaled(row + G * K, 1.0f, dv + t * K, K);
      }
    });
  });
}

void attention_cached(Stream& stream, Arena& scratch, Tensor out, const KvCache& cache,
                      ConstTensor qkv, ConstTensor positions) {
  const auto B = positions.shape[0], n = positions.shape[1], C = cache.keys.shape[1];
  const auto H = out.shape[1], K = out.shape[2], all = qkv.shape[1], G = (all - H) / 2;
  const Arena::Scope scope(scratch);
  const auto rows = scratch.allocate("attention_scores", DType::fp32, {stream.threads(), C + K});
  if (stream.is_measuring()) return;
  with_float(qkv.dtype, [&]<class E>(E) {
    for (std::int64_t i = 0; i < B * n; ++i) {
      const auto at = (i / n * C + positions.as<std::int32_t>()[i]) * G * K;
      const E* token = qkv.as<E>() + (i * all + H) * K;
      std::copy_n(token, G * K, cache.keys.as<E>() + at);
      std::copy_n(token + G * K, G * K, cache.values.as<E>() + at);
    }
    stream.parallel_for(B * n * H, [&](std::int64_t task, int thread) {
      const auto i = task / H, h = task % H, g = h / (H / G);
      const auto at = (i / n * C * G + g) * K;
      float* scores = rows.as<float>() + thread * (C + K);
      attend(out.as<E>() + (i * H + h) * K, qkv.as<E>() + (i * all + h) * K,
             cache.keys.as<E>() + at, cache.values.as<E>() + at,
             positions.as<std::int32_t>()[i] + std::int64_t{1}, G * K, K, scores, scores + C);
    });
  });
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
