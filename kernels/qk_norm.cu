// The kernels work like those of rmsnorm.cu, with heads as rows. Heads are short: a row has as many
// lanes of a warp as it has pairs of packs, so that a warp has several rows. A pair is a pack of
// the head's first half and the pack that RoPE rotates it with, half a head later. A thread has
// both. Forward reads qkv once. Backward reads dqkv and qkv once, and also the value heads of dqkv
// if absmax is requested. The cosines and sines of a token come from cache for all heads except
// one.
#include <bit>

#include "kernels/attention.cuh"
#include "kernels/elementwise.h"
#include "kernels/qk_norm.h"
#include "kernels/rotation.cuh"
#include "kernels/rows.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;

// Heads describes the heads for both passes. Numbers of rows have 32 bits, in which division is
// fast.
struct Heads {
  unsigned tokens = 0, queries = 0, keys = 0;  // there are as many value heads as keys
  int K = 0;
  const float* table = nullptr;  // absent: no RoPE
  const std::int32_t* positions = nullptr;

  __device__ unsigned normed() const { return queries + keys; }
  __device__ std::int64_t offset(unsigned token, unsigned head) const {
    return (static_cast<std::int64_t>(token) * (normed() + keys) + head) * K;
  }
  __device__ std::int64_t rstd(unsigned token, unsigned head) const {
    return static_cast<std::int64_t>(token) * normed() + head;
  }
  __device__ int half() const { return (K + 1) / 2; }  // if K is odd, there is no RoPE
};

// Held is the packs of a thread: v[pair][0] and v[pair][1], half a head apart.
template <int kPairs, int kWidth>
using Held = float[kPairs][2][kWidth];

// Calls body(pair, side, k) for the packs of this thread's row, with k the first element of each.
// Side 1 is the second half of the head.
template <int kPairs, int kWidth, class Body>
__device__ inline void for_pairs(const Heads& heads, Body&& body) {
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const int i = (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kWidth;
    if (i < heads.half()) {
      body(p, 0, i);
      if (heads.half() + i < heads.K) body(p, 1, heads.half() + i);
    }
  }
}

// Rotates a head of token `token` if there is RoPE.
template <int kPairs, int kWidth>
__device__ inline void turn(Held<kPairs, kWidth>& v, const Heads& heads, unsigned token,
                            float sign) {
  if (heads.table == nullptr) return;
  const float* row = heads.table + static_cast<std::int64_t>(heads.positions[token]) * heads.K;
  for_pairs<kPairs, kWidth>(heads, [&](int p, int side, int k) {
    if (side == 0) rotate(v[p][0], v[p][1], row + k, heads.half(), sign);
  });
}

// A row is one of the first `written` heads of a token: all, or in place all except the value
// heads.
template <class T, int kPairs, int kWidth>
__global__ void __launch_bounds__(kThreads)
    qk_norm_forward_kernel(T* out, float* rstd, const T* qkv, const T* q_weight, const T* k_weight,
                           float epsilon, Heads heads, unsigned written) {
  const unsigned row = blockIdx.x * blockDim.y + threadIdx.y;
  const unsigned token = row / written, head = row % written;
  const bool valid = token < heads.tokens, normed = head < heads.normed();
  const auto begin = heads.offset(token, head);
  Held<kPairs, kWidth> v = {};
  float squares = 0.0f;
  if (valid)
    for_pairs<kPairs, kWidth>(heads, [&](int p, int side, int k) {
      load(v[p][side], qkv + begin + k);
#pragma unroll
      for (const float x : v[p][side])
        squares += x * x;
    });
  squares = lanes_sum(squares, blockDim.x);
  if (!valid) return;
  if (normed) {
    const float r = rsqrtf(squares / static_cast<float>(heads.K) + epsilon);
    const T* weight = head < heads.queries ? q_weight : k_weight;
    for_pairs<kPairs, kWidth>(heads, [&](int p, int side, int k) {
      float w[kWidth];
      load(w, weight + k);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        v[p][side][i] *= r * w[i];
    });
    turn<kPairs, kWidth>(v, heads, token, 1.0f);
    if (threadIdx.x == 0) rstd[heads.rstd(token, head)] = r;
  }
  for_pairs<kPairs, kWidth>(heads,
                            [&](int p, int side, int k) { store(out + begin + k, v[p][side]); });
}

template <class T>
struct Backward {
  T* dqkv;
  float* partial;  // [2, blocks, K]: of queries, of keys
  const T *qkv, *q_weight, *k_weight;
  const float* rstd;
  float* absmax;
  Heads heads;
};

// Returns the largest magnitude of the value heads of dqkv that this thread reads.
template <class T, int kPairs, int kWidth>
__device__ inline float largest_value(const Backward<T>& a) {
  const Heads& heads = a.heads;
  float most = 0.0f;
  for_rows_of_block(heads.tokens * heads.keys, [&](std::int64_t row, bool valid) {
    if (!valid) return;
    const unsigned r = static_cast<unsigned>(row);
    const auto begin = heads.offset(r / heads.keys, heads.normed() + r % heads.keys);
    for_pairs<kPairs, kWidth>(heads, [&](int, int, int k) {
      float v[kWidth];
      load(v, a.dqkv + begin + k);
      most = largest_of(most, v);
    });
  });
  return most;
}

// The rows of blockIdx.y 0 are query heads, those of 1 key heads, those of 2 value heads.
template <class T, int kPairs, int kWidth>
__global__ void __launch_bounds__(kThreads) qk_norm_backward_kernel(Backward<T> a) {
  const Heads& heads = a.heads;
  if (blockIdx.y == 2) return raise(a.absmax, largest_value<T, kPairs, kWidth>(a));
  float most = 0.0f;
  const bool keys = blockIdx.y == 1;
  const unsigned first = keys ? heads.queries : 0, count = keys ? heads.keys : heads.queries;
  const T* weight = keys ? a.k_weight : a.q_weight;
  Held<kPairs, kWidth> dweight = {};
  for_rows_of_block(heads.tokens * count, [&](std::int64_t row, bool valid) {
    const unsigned token = static_cast<unsigned>(row) / count;
    const unsigned head = first + static_cast<unsigned>(row) % count;
    const auto begin = heads.offset(token, head);
    const float r = valid ? a.rstd[heads.rstd(token, head)] : 0.0f;
    Held<kPairs, kWidth> g = {}, v = {};
    float products = 0.0f;
    if (valid) {
      for_pairs<kPairs, kWidth>(heads, [&](int p, int side, int k) {
        load(g[p][side], a.dqkv + begin + k);
        load(v[p][side], a.qkv + begin + k);
      });
      turn<kPairs, kWidth>(g, heads, token, -1.0f);
      for_pairs<kPairs, kWidth>(heads, [&](int p, int side, int k) {
        float w[kWidth];
        load(w, weight + k);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          dweight[p][side][i] += g[p][side][i] * v[p][side][i] * r;
          g[p][side][i] *= w[i];
          products += g[p][side][i] * v[p][side][i];
        }
      });
    }
    products = lanes_sum(products, blockDim.x);
    if (!valid) return;
    const float c = products / static_cast<float>(heads.K) * r * r;
    for_pairs<kPairs, kWidth>(heads, [&](int p, int side, int k) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        g[p][side][i] = r * (g[p][side][i] - v[p][side][i] * c);
      store(a.dqkv + begin + k, g[p][side]);
      most = largest_of(most, g[p][side]);
    });
  });
  if (a.absmax != nullptr) raise_stored<T>(a.absmax, most);
  float* shared = dynamic_shared<float>();  // [rows of the block, K]
  for_pairs<kPairs, kWidth>(heads, [&](int p, int side, int k) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      shared[static_cast<int>(threadIdx.y) * heads.K + k + i] = dweight[p][side][i];
  });
  const auto block = static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  store_shared_sums(a.partial + block * heads.K, shared, heads.K);
}

template <class Args>
Heads heads_of(const Args& args) {
  return {.tokens = static_cast<unsigned>(args.qkv.shape[0]),
          .queries = static_cast<unsigned>(args.heads),
          .keys = static_cast<unsigned>(args.kv_heads),
          .K = static_cast<int>(args.qkv.shape[2]),
          .table = args.table ? args.table.template as<float>() : nullptr,
          .positions = args.table ? args.positions.template as<std::int32_t>() : nullptr};
}

// Calls f(pairs, width, layout) with integral constants for the first two. A thread holds `pairs`
// pairs of packs of `width` elements of a head at these addresses.
template <class T, class F>
void with_pairs(ConstTensor qkv, std::initializer_list<const void*> addresses, F&& f) {
  const auto K = qkv.shape[2], rows = qkv.shape[0] * qkv.shape[1];
  check_head_size(K);
  LOCKSTEP_CHECK(rows <= INT32_MAX, "qk-norm of ", rows, " heads; a GPU takes 2^31");
  with_width<T>(K % 2 == 0 ? K / 2 : 1, addresses, [&](auto width) {
    constexpr int kMost = std::max(1, static_cast<int>(kMostHeadSize) / (64 * width));
    const auto pairs = static_cast<unsigned>(divide_up(divide_up(K, 2), width));
    const auto lanes = static_cast<int>(std::min(32u, std::bit_ceil(pairs)));
    const RowLayout layout{.threads = lanes, .rows = kThreads / lanes};
    if (pairs <= 32)
      f(std::integral_constant<int, 1>{}, width, layout);
    else
      f(std::integral_constant<int, kMost>{}, width, layout);
  });
}

}  // namespace

void qk_norm_forward(Stream& stream, const QkNormForward& args) {
  const auto heads = heads_of(args);
  const bool in_place = args.out.data == args.qkv.data;
  const auto written = heads.queries + heads.keys * (in_place ? 1 : 2);
  const auto rows = args.qkv.shape[0] * written;
  with_float(args.qkv.dtype, [&]<class T>(T) {
    with_pairs<T>(
        args.qkv,
        {args.out.data, args.qkv.data, args.q_weight.data, args.k_weight.data, args.table.data},
        [&](auto pairs, auto width, const RowLayout& layout) {
          launch(stream, {static_cast<unsigned>(divide_up(rows, layout.rows)), layout.block()},
                 qk_norm_forward_kernel<T, pairs, width>, args.out.as<T>(), args.rstd.as<float>(),
                 args.qkv.as<T>(), args.q_weight.as<T>(), args.k_weight.as<T>(), args.epsilon,
                 heads, written);
        });
  });
}

void qk_norm_backward(Stream& stream, Arena& scratch, const QkNormBackward& args) {
  const auto K = args.qkv.shape[2], blocks = gradient_blocks(args.qkv.shape[0] * args.heads);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("qk_norm_dweights", DType::fp32, {2, blocks, K});
  if (stream.is_measuring()) return;
  if (args.absmax) cuda::fill(stream, args.absmax, 0.0f);
  with_float(args.qkv.dtype, [&]<class T>(T) {
    const Backward<T> a{.dqkv = args.dqkv.as<T>(),
                        .partial = partial.as<float>(),
                        .qkv = args.qkv.as<T>(),
                        .q_weight = args.q_weight.as<T>(),
                        .k_weight = args.k_weight.as<T>(),
                        .rstd = args.rstd.as<float>(),
                        .absmax = args.absmax ? args.absmax.as<float>() : nullptr,
                        .heads = heads_of(args)};
    with_pairs<T>(
        args.qkv,
        {args.dqkv.data, args.qkv.data, args.q_weight.data, args.k_weight.data, args.table.data},
        [&](auto pairs, auto width, const RowLayout& layout) {
          launch(stream,
                 {{static_cast<unsigned>(blocks), args.absmax ? 3u : 2u},
                  layout.block(),
                  sums_bytes(layout, K)},
                 qk_norm_backward_kernel<T, pairs, width>, a);
        });
  });
  add_block_sums(stream, args.dq_weight, partial.rows(0, 1).view({blocks, K}));
  add_block_sums(stream, args.dk_weight, partial.rows(1, 1).view({blocks, K}));
}

}  // namespace lockstep::cuda
