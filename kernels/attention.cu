// This file launches the attention kernels, and computes delta before backward (Dao 2023,
// arXiv:2307.08691, algorithm 2). A head of a token has as many lanes as packs, at most 32.
#include <bit>

#include "kernels/attention.cuh"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kFewTokens = 8;  // with fewer, tiles of queries would be nearly empty

// Row n H + h is head h of token n. A block is [lanes of a row, rows]; the lanes are a power of two
// up to 32.
template <class E, int kWidth>
__global__ void __launch_bounds__(kThreads)
    row_statistics_kernel(RowStatistics* rows, const E* dout, const E* out, const float* lse,
                          unsigned rows_in_all, unsigned T, unsigned H, int K) {
  const unsigned row = blockIdx.x * blockDim.y + threadIdx.y;
  const bool valid = row < rows_in_all;
  const int step = static_cast<int>(blockDim.x) * kWidth;
  const auto begin = static_cast<std::int64_t>(row) * K;
  float delta = 0.0f;
  for (int d = static_cast<int>(threadIdx.x) * kWidth; valid && d < K; d += step) {
    float x[kWidth], y[kWidth];
    load(x, dout + begin + d);
    load(y, out + begin + d);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      delta += x[i] * y[i];
  }
  delta = lanes_sum(delta, blockDim.x);
  if (!valid || threadIdx.x != 0) return;
  const unsigned token = row / H;
  const auto at = (static_cast<std::int64_t>(token / T) * H + row % H) * T + token % T;
  // A query that sees no key has lse -infinity. With +infinity instead, its probabilities are 0.
  rows[at] = {lse[at] == -INFINITY ? INFINITY : lse[at] * kLog2E, delta};
}

template <class E>
void row_statistics(Stream& stream, const AttentionBackward<E>& a, RowStatistics* rows,
                    const E* out, const float* lse) {
  const auto N = static_cast<std::int64_t>(a.B) * a.T;
  LOCKSTEP_CHECK(N * a.H <= INT32_MAX, "attention of ", N, " tokens with ", a.H,
                 " heads; a GPU takes 2^31 rows");
  with_width<E>(a.K, {a.dout, out}, [&](auto width) {
    const auto packs = static_cast<unsigned>(divide_up(a.K, width));
    const auto lanes = std::min(32u, std::bit_ceil(packs)), in_block = kThreads / lanes;
    launch(stream, {static_cast<unsigned>(divide_up(N * a.H, in_block)), {lanes, in_block}},
           row_statistics_kernel<E, width>, rows, a.dout, out, lse, static_cast<unsigned>(N * a.H),
           static_cast<unsigned>(a.T), static_cast<unsigned>(a.H), a.K);
  });
}

// Returns 1 / sqrt(K), the scale of q k.
float score_scale(std::int64_t K) {
  return 1.0f / std::sqrt(static_cast<float>(K));
}

bool fits_tensor_cores(std::int64_t K, std::initializer_list<const void*> addresses) {
  bool fits = K == 64 || K == 128;
  for (const void* a : addresses)
    fits = fits && reinterpret_cast<std::uintptr_t>(a) % 16 == 0;
  return fits;
}

// Returns whether a.absmax, if given, was raised.
template <class E>
bool run_forward(Stream& stream, const AttentionForward<E>& a) {
  if constexpr (std::is_same_v<E, BFloat16>)
    if (fits_tensor_cores(a.K, {a.q, a.k, a.v, a.out})) {
      flash_forward(stream, a);
      return true;
    }
  plain_forward(stream, a);
  return false;
}

}  // namespace

void attention_forward(Stream& stream, Arena& /*scratch*/, Tensor out, Tensor lse, ConstTensor qkv,
                       ConstTensor document_start, Tensor absmax) {
  if (stream.is_measuring()) return;
  const auto H = out.shape[1], K = out.shape[2], G = (qkv.shape[1] - H) / 2;
  with_float(qkv.dtype, [&]<class E>(E) {
    const E* q = qkv.as<E>();
    const AttentionForward<E> a{
        .q = q,
        .k = q + H * K,
        .v = q + (H + G) * K,
        .out = out.as<E>(),
        .lse = lse.as<float>(),
        .absmax = absmax ? absmax.as<float>() : nullptr,
        .first = document_start ? document_start.as<std::int32_t>() : nullptr,
        .last = nullptr,
        .q_stride = qkv.shape[1] * K,
        .kv_stride = qkv.shape[1] * K,
        .B = static_cast<int>(lse.shape[0]),
        .H = static_cast<int>(H),
        .G = static_cast<int>(G),
        .K = static_cast<int>(K),
        .queries = static_cast<int>(lse.shape[2]),
        .keys = static_cast<int>(lse.shape[2]),
        .scale = score_scale(K) * kLog2E};
    if (absmax) cuda::fill(stream, absmax, 0.0f);
    if (!run_forward(stream, a) && absmax) cuda::absmax(stream, absmax, out);
  });
}

void attention_backward(Stream& stream, Arena& scratch, Tensor dqkv, ConstTensor dout,
                        ConstTensor out, ConstTensor lse, ConstTensor qkv,
                        ConstTensor document_start) {
  const auto B = lse.shape[0], T = lse.shape[2];
  const auto H = out.shape[1], K = out.shape[2], G = (qkv.shape[1] - H) / 2;
  const Arena::Scope scope(scratch);
  const auto rows = scratch.allocate("attention_rows", DType::fp32, {B, H, T, 2});
  const auto ranges = scratch.allocate("attention_ranges", DType::int32, key_ranges(B, T));
  if (stream.is_measuring()) return;
  const auto* first = document_start ? document_start.as<std::int32_t>() : nullptr;
  with_float(qkv.dtype, [&]<class E>(E) {
    const E* q = qkv.as<E>();
    E* dq = dqkv.as<E>();
    auto* statistics = reinterpret_cast<RowStatistics*>(rows.data);
    const AttentionBackward<E> a{.q = q,
                                 .k = q + H * K,
                                 .v = q + (H + G) * K,
                                 .dout = dout.as<E>(),
                                 .dq = dq,
                                 .dk = dq + H * K,
                                 .dv = dq + (H + G) * K,
                                 .rows = statistics,
                                 .document_start = first,
                                 .stride = qkv.shape[1] * K,
                                 .B = static_cast<int>(B),
                                 .H = static_cast<int>(H),
                                 .G = static_cast<int>(G),
                                 .K = static_cast<int>(K),
                                 .T = static_cast<int>(T),
                                 .scale = score_scale(K),
                                 .scale_base_2 = score_scale(K) * kLog2E};
    row_statistics(stream, a, statistics, out.as<E>(), lse.as<float>());
    if constexpr (std::is_same_v<E, BFloat16>)
      if (fits_tensor_cores(K, {a.q, a.k, a.v, a.dout, a.dq, a.dk, a.dv}) &&
          has_flash_backward(stream, K))
        return flash_backward(stream, ranges, a);
    plain_backward(stream, a);
  });
}

void attention_cached(Stream& stream, Arena& scratch, Tensor out, const KvCache& cache,
                      ConstTensor qkv, ConstTensor positions) {
  const auto B = positions.shape[0], n = positions.shape[1], H = out.shape[1], K = out.shape[2];
  const auto C = cache.keys.shape[1], G = cache.keys.shape[2];
  const bool decodes = n < kFewTokens;
  const Arena::Scope scope(scratch);
  const auto partials = scratch.allocate("attention_partials", DType::fp32,
                                         {decodes ? decode_partials(B * n, H, K, C) : 0});
  if (stream.is_measuring()) return;
  with_float(qkv.dtype, [&]<class E>(E) {
    append_to_cache<E>(stream, cache, qkv, positions);
    const AttentionForward<E> a{.q = qkv.as<E>(),
                                .k = cache.keys.as<E>(),
                                .v = cache.values.as<E>(),
                                .out = out.as<E>(),
                                .lse = nullptr,
                                .absmax = nullptr,
                                .first = nullptr,
                                .last = positions.as<std::int32_t>(),
                                .q_stride = qkv.shape[1] * K,
                                .kv_stride = G * K,
                                .B = static_cast<int>(B),
                                .H = static_cast<int>(H),
                                .G = static_cast<int>(G),
                                .K = static_cast<int>(K),
                                .queries = static_cast<int>(n),
                                .keys = static_cast<int>(C),
                                .scale = score_scale(K) * kLog2E};
    if (decodes)
      decode(stream, partials, a);
    else
      run_forward(stream, a);
  });
}

}  // namespace lockstep::cuda
