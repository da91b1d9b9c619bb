// One query at a time.
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

}  // namespace

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
