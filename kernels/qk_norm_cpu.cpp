// Tokens are spread over threads. Backward keeps one partial of both weights' gradients a block of
// tokens: which tokens a partial sums is fixed by N alone, and partials are added in order.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/qk_norm.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

template <class T>
void forward_head(T* out, float* rstd, const T* s, const T* weight, std::int64_t K, float epsilon) {
  Floats squares{};
  for_vectors(K, [&](std::int64_t k, std::int64_t n) {
    const Floats v = load(s + k, n);
    squares += v * v;
  });
  *rstd = 1.0f / std::sqrt(total(squares) / static_cast<float>(K) + epsilon);
  for_vectors(K, [&](std::int64_t k, std::int64_t n) {
    store(out + k, load(s + k, n) * *rstd * load(weight + k, n), n);
  });
}

// d holds the gradient of the output and receives that of the input.
template <class T>
void backward_head(T* d, float* dweight, const T* s, float rstd, const T* weight, std::int64_t K) {
  Floats products{};
  for_vectors(K, [&](std::int64_t k, std::int64_t n) {
    products += load(d + k, n) * load(weight + k, n) * load(s + k, n);
  });
  const float c = total(products) / static_cast<float>(K) * rstd * rstd;
  for_vectors(K, [&](std::int64_t k, std::int64_t n) {
    const Floats g = load(d + k, n), v = load(s + k, n);
    store(d + k, rstd * (g * load(weight + k, n) - v * c), n);
    store(dweight + k, load(dweight + k, n) + g * v * rstd, n);
  });
}

template <class T>
void forward_token(const QkNormForward& args, std::int64_t n) {
  const auto heads = args.qkv.shape[1], K = args.qkv.shape[2];
  const auto normed = args.heads + args.kv_heads;
  const T* s = args.qkv.as<T>() + n * heads * K;
  T* out = args.out.as<T>() + n * heads * K;
  for (std::int64_t h = 0; h < normed; ++h)
    forward_head(out + h * K, args.rstd.as<float>() + n * normed + h, s + h * K,
                 (h < args.heads ? args.q_weight : args.k_weight).as<T>(), K, args.epsilon);
  if (out != s) std::copy(s + normed * K, s + heads * K, out + normed * K);
}

// dweights: both weights' gradients, [2, K].
template <class T>
void backward_token(const QkNormBackward& args, float* dweights, std::int64_t n) {
  const auto heads = args.qkv.shape[1], K = args.qkv.shape[2];
  const auto normed = args.heads + args.kv_heads;
  for (std::int64_t h = 0; h < normed; ++h) {
    const bool query = h < args.heads;
    const auto at = (n * heads + h) * K;
    backward_head(args.dqkv.as<T>() + at, dweights + (query ? 0 : K), args.qkv.as<T>() + at,
                  args.rstd.as<float>()[n * normed + h],
                  (query ? args.q_weight : args.k_weight).as<T>(), K);
  }
}

}  // namespace

void qk_norm_forward(Stream& stream, const QkNormForward& args) {
  with_float(args.qkv.dtype, [&]<class T>(T) {
    stream.parallel_ranges(args.qkv.shape[0], 8, [&](std::int64_t begin, std::int64_t end) {
      for (auto n = begin; n < end; ++n)
        forward_token<T>(args, n);
    });
  });
}

void qk_norm_backward(Stream& stream, Arena& scratch, const QkNormBackward& args) {
  const auto N = args.qkv.shape[0], K = args.qkv.shape[2], blocks = row_blocks(N);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("qk_norm_dweights", DType::fp32, {blocks, 2 * K});
  if (stream.is_measuring()) return;
  with_float(args.qkv.dtype, [&]<class T>(T) {
    stream.parallel_for(blocks, [&](std::int64_t block, int) {
      float* sums = partial.as<float>() + block * 2 * K;
      std::fill_n(sums, 2 * K, 0.0f);
      for (auto n = N * block / blocks; n < N * (block + 1) / blocks; ++n)
        backward_token<T>(args, sums, n);
    });
  });
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t k = 0; k < K; ++k) {
      args.dq_weight.as<float>()[k] += partial.as<float>()[block * 2 * K + k];
      args.dk_weight.as<float>()[k] += partial.as<float>()[block * 2 * K + K + k];
    }
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
