// Tokens are divided over threads. Backward keeps one partial of both weights' gradients per block
// of tokens. The tokens of a partial depend only on N, and partials are added in order.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "kernels/parallel.h"
#include "kernels/qk_norm.h"
#include "kernels/reduce.h"

#include "kernels/cpu_begin.h"  // after every other include

#include "kernels/rotation_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

// Normalises a head. If rotation is not nullptr, it rotates out before rounding it.
template <class T>
void forward_head(T* out, float* rstd, const T* s, const T* weight, std::int64_t K, float epsilon,
                  const Rotation* rotation) {
  Floats squares{};
  for_vectors(K, [&](std::int64_t k, std::int64_t n) {
    const Floats v = load(s + k, n);
    squares += v * v;
  });
  *rstd = 1.0f / std::sqrt(total(squares) / static_cast<float>(K) + epsilon);
  const auto normed = [&](std::int64_t k, std::int64_t n) {
    return load(s + k, n) * *rstd * load(weight + k, n);
  };
  if (rotation == nullptr)
    return for_vectors(K, [&](std::int64_t k, std::int64_t n) { store(out + k, normed(k, n), n); });
  const auto half = rotation->half;
  for_vectors(half, [&](std::int64_t i, std::int64_t n) {
    const auto turned = rotation->of(normed(i, n), normed(half + i, n), i, n);
    store(out + i, turned.a, n);
    store(out + half + i, turned.b, n);
  });
}

// Computes turned [K] = the gradient d of a head, rotated back.
template <class T>
void turn_back(float* turned, const T* d, const Rotation& rotation) {
  const auto half = rotation.half;
  for_vectors(half, [&](std::int64_t i, std::int64_t n) {
    const auto pair = rotation.of(load(d + i, n), load(d + half + i, n), i, n);
    store(turned + i, pair.a, n);
    store(turned + half + i, pair.b, n);
  });
}

// Sets d to the gradient of the input. `gradient`, that of the normalised head, may be d.
template <class T, class Gradient>
void backward_head(T* d, float* dweight, const Gradient* gradient, const T* s, float rstd,
                   const T* weight, std::int64_t K) {
  Floats products{};
  for_vectors(K, [&](std::int64_t k, std::int64_t n) {
    products += load(gradient + k, n) * load(weight + k, n) * load(s + k, n);
  });
  const float c = total(products) / static_cast<float>(K) * rstd * rstd;
  for_vectors(K, [&](std::int64_t k, std::int64_t n) {
    const Floats g = load(gradient + k, n), v = load(s + k, n);
    store(d + k, rstd * (g * load(weight + k, n) - v * c), n);
    store(dweight + k, load(dweight + k, n) + g * v * rstd, n);
  });
}

template <class Args>
std::optional<Rotation> rotation_of(const Args& args, std::int64_t n, float sign) {
  if (!args.table) return {};
  return Rotation(args.table, args.positions, n, sign);
}

template <class T>
void forward_token(const QkNormForward& args, std::int64_t n) {
  const auto heads = args.qkv.shape[1], K = args.qkv.shape[2];
  const auto normed = args.heads + args.kv_heads;
  const T* s = args.qkv.as<T>() + n * heads * K;
  T* out = args.out.as<T>() + n * heads * K;
  const auto rotation = rotation_of(args, n, 1.0f);
  for (std::int64_t h = 0; h < normed; ++h)
    forward_head(out + h * K, args.rstd.as<float>() + n * normed + h, s + h * K,
                 (h < args.heads ? args.q_weight : args.k_weight).as<T>(), K, args.epsilon,
                 rotation ? &*rotation : nullptr);
  if (out != s) std::copy(s + normed * K, s + heads * K, out + normed * K);
}

// dweights: both weights' gradients, [2, K]. turned [K]: scratch.
template <class T>
void backward_token(const QkNormBackward& args, float* dweights, float* turned, std::int64_t n) {
  const auto heads = args.qkv.shape[1], K = args.qkv.shape[2];
  const auto normed = args.heads + args.kv_heads;
  const auto rotation = rotation_of(args, n, -1.0f);
  for (std::int64_t h = 0; h < normed; ++h) {
    const bool query = h < args.heads;
    const auto at = (n * heads + h) * K;
    T* d = args.dqkv.as<T>() + at;
    const auto run = [&](const auto* gradient) {
      backward_head(d, dweights + (query ? 0 : K), gradient, args.qkv.as<T>() + at,
                    args.rstd.as<float>()[n * normed + h],
                    (query ? args.q_weight : args.k_weight).as<T>(), K);
    };
    if (!rotation) {
      run(d);
      continue;
    }
    turn_back(turned, d, *rotation);
    run(turned);
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
  const auto turned = scratch.allocate("qk_norm_turned", DType::fp32, {blocks, K});
  if (stream.is_measuring()) return;
  with_float(args.qkv.dtype, [&]<class T>(T) {
    stream.parallel_for(blocks, [&](std::int64_t block, int) {
      float* sums = partial.as<float>() + block * 2 * K;
      std::fill_n(sums, 2 * K, 0.0f);
      for (auto n = N * block / blocks; n < N * (block + 1) / blocks; ++n)
        backward_token<T>(args, sums, turned.as<float>() + block * K, n);
    });
  });
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t k = 0; k < K; ++k) {
      args.dq_weight.as<float>()[k] += partial.as<float>()[block * 2 * K + k];
      args.dk_weight.as<float>()[k] += partial.as<float>()[block * 2 * K + K + k];
    }
  if (args.absmax) lockstep::absmax(stream, args.absmax, args.dqkv);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
