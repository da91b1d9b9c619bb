// Attention of few new tokens to a cache takes the time of reading the cache. Its keys are cut into
// spans of 256, so that one sequence has work for the whole GPU. A block reads a span of one kv
// head once for up to 8 rows: query heads of the group, of all new tokens. It stores a partial
// softmax of each row, and a second kernel joins these in order. Spans have a fixed length, so the
// bits depend neither on the GPU nor on the size of the cache. Positions are known only on the
// device, so blocks are launched for spans that no token sees; they return at once.
#include "kernels/attention.cuh"

namespace lockstep {
namespace {

constexpr int kSpan = 256, kWarps = 4, kThreads = 32 * kWarps, kRows = 8;
constexpr int kLanes = 8;                            // lanes that share a key
constexpr int kKeysAtOnce = kWarps * (32 / kLanes);  // that a block reads at once
constexpr int kUnroll = 4;
static_assert(kRows == kLanes && kSpan % (kUnroll * kKeysAtOnce) == 0);
constexpr int kHeader = 2;  // floats of a partial before its K sums: maximum and total

template <class E, int kWidth>
__global__ void append_kernel(E* keys, E* values, const E* qkv, const std::int32_t* positions,
                              int n, int H, int C, int row) {
  const auto token = static_cast<std::int64_t>(blockIdx.x);
  const E* k = qkv + token * (static_cast<std::int64_t>(H) + 2 * row);
  const std::int64_t at = (token / n * C + positions[token]) * row;
  for (int i = static_cast<int>(threadIdx.x) * kWidth; i < row; i += kThreads * kWidth) {
    using Word = Pack<E, kWidth>;
    *reinterpret_cast<Word*>(keys + at + i) = *reinterpret_cast<const Word*>(k + H + i);
    *reinterpret_cast<Word*>(values + at + i) = *reinterpret_cast<const Word*>(k + H + row + i);
  }
}

struct DecodeShared {
  float q[kRows][kMostHeadSize];
  float p[kRows][kSpan];
  float sums[kWarps][kRows][kLanes * 8];
};

// Turns the scores of a row into exponentials relative to their maximum. Stores the maximum and the
// total.
__device__ inline void span_softmax(float* partial, float (&p)[kSpan], int visible, int lane) {
  float maximum = -1e30f, total = 0.0f;
  for (int j = lane; j < kSpan; j += 32)
    if (j < visible) maximum = fmaxf(maximum, p[j]);
  maximum = warp_max(maximum);
  for (int j = lane; j < kSpan; j += 32) {
    p[j] = j < visible ? exp2f(p[j] - maximum) : 0.0f;
    total += p[j];
  }
  total = warp_sum(total);
  if (lane > 0) return;
  partial[0] = maximum;
  partial[1] = total;
}

// partials [B n, H, spans, kHeader + K]
template <class E, int kWidth>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(float* partials, AttentionForward<E> a, int tiles) {
  auto& shared = *dynamic_shared<DecodeShared>();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int span = static_cast<int>(blockIdx.y), spans = static_cast<int>(gridDim.y);
  const int tile = static_cast<int>(blockIdx.x) % tiles;
  const int g = static_cast<int>(blockIdx.x) / tiles % a.G;
  const int b = static_cast<int>(blockIdx.x) / tiles / a.G;
  const int heads = a.H / a.G, first_row = tile * kRows;
  const int rows = min(a.queries * heads - first_row, kRows);
  // Row r is head (first_row + r) % heads of the group, of token (first_row + r) / heads.
  const auto token_of = [&](int r) { return (first_row + r) / heads; };
  const auto head_of = [&](int r) { return g * heads + (first_row + r) % heads; };

  int keys = 0;  // keys of the span that any row sees
  for (int token = token_of(0); token <= token_of(rows - 1); ++token)
    keys = max(keys, min(a.last_key(b, token) + 1 - span * kSpan, kSpan));
  if (keys <= 0) return;
  for (int i = thread; i < kRows * a.K; i += kThreads) {
    const int r = i / a.K, d = i % a.K;
    shared.q[r][d] =
        r < rows ? to_float(a.q[a.query_at(b, token_of(r), head_of(r)) + d]) * a.scale : 0.0f;
  }
  __syncthreads();

  const int part = lane % kLanes;  // of a key
  const int slot = thread / kLanes;
  const auto at = a.key_at(b, span * kSpan, g);
  // Several keys are read at once, so that their loads overlap. Past the last key, the last one is
  // read again.
  for (int base = 0; base < keys; base += kUnroll * kKeysAtOnce) {
    const int first = base + slot;
    const E* k[kUnroll];
    float scores[kUnroll][kRows] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      k[u] = a.k + at + min(first + u * kKeysAtOnce, keys - 1) * a.kv_stride;
    for (int d = part * kWidth; d < a.K; d += kLanes * kWidth) {
      float key[kUnroll][kWidth];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        load(key[u], k[u] + d);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
#pragma unroll
          for (int u = 0; u < kUnroll; ++u)
            scores[u][r] += shared.q[r][d + i] * key[u][i];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int offset = kLanes / 2; offset > 0; offset /= 2)
          scores[u][r] += __shfl_xor_sync(kAllLanes, scores[u][r], offset);
        if (part == r) shared.p[r][first + u * kKeysAtOnce] = scores[u][r];
      }
  }
  __syncthreads();

  const auto partial_of = [&](int r) {
    const auto token = static_cast<std::int64_t>(b) * a.queries + token_of(r);
    return partials + ((token * a.H + head_of(r)) * spans + span) * (kHeader + a.K);
  };
  for (int r = warp; r < rows; r += kWarps)
    span_softmax(partial_of(r), shared.p[r], a.last_key(b, token_of(r)) + 1 - span * kSpan, lane);
  __syncthreads();

  for (int d = 0; d < a.K; d += kLanes * kWidth) {
    const int column = d + part * kWidth;
    float sums[kRows][kWidth] = {};
    for (int first = slot; first < keys && column < a.K; first += kUnroll * kKeysAtOnce) {
      float value[kUnroll][kWidth];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        load(value[u], a.v + at + min(first + u * kKeysAtOnce, keys - 1) * a.kv_stride + column);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int i = 0; i < kWidth; ++i)
            sums[r][i] += shared.p[r][first + u * kKeysAtOnce] * value[u][i];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
#pragma unroll
        for (int offset = kLanes; offset < 32; offset *= 2)
          sums[r][i] += __shfl_xor_sync(kAllLanes, sums[r][i], offset);
        if (lane < kLanes) shared.sums[warp][r][part * kWidth + i] = sums[r][i];
      }
    __syncthreads();
    for (int i = thread; i < rows * kLanes * kWidth; i += kThreads) {
      const int r = i / (kLanes * kWidth), c = i % (kLanes * kWidth);
      float sum = 0.0f;
      for (int w = 0; w < kWarps; ++w)
        sum += shared.sums[w][r][c];
      if (d + c < a.K) partial_of(r)[kHeader + d + c] = sum;
    }
    __syncthreads();
  }
}

// Joins, with one block per token and head, the spans up to the token's position, in order.
template <class E>
__global__ void __launch_bounds__(kThreads)
    join_kernel(const float* partials, AttentionForward<E> a, int spans) {
  const int head = static_cast<int>(blockIdx.x) % a.H;
  const int token = static_cast<int>(blockIdx.x) / a.H, b = token / a.queries;
  const int count = a.last_key(b, token % a.queries) / kSpan + 1;
  const std::int64_t floats = kHeader + a.K;
  const float* mine = partials + static_cast<std::int64_t>(blockIdx.x) * spans * floats;
  float maximum = mine[0], total = 0.0f;
  for (int s = 1; s < count; ++s)
    maximum = fmaxf(maximum, mine[s * floats]);
  for (int s = 0; s < count; ++s)
    total += mine[s * floats + 1] * exp2f(mine[s * floats] - maximum);
  for (int d = static_cast<int>(threadIdx.x); d < a.K; d += kThreads) {
    float sum = 0.0f;
    for (int s = 0; s < count; ++s)
      sum += mine[s * floats + kHeader + d] * exp2f(mine[s * floats] - maximum);
    a.out[a.out_at(b, token % a.queries, head) + d] = from_float<E>(sum / total);
  }
}

}  // namespace

template <class E>
void append_to_cache(Stream& stream, const KvCache& cache, ConstTensor qkv, ConstTensor positions) {
  const auto tokens = positions.elements(), C = cache.keys.shape[1];
  const auto row = cache.keys.shape[2] * cache.keys.shape[3];
  const auto H = (qkv.shape[1] - 2 * cache.keys.shape[2]) * qkv.shape[2];
  with_width<E>(cache.keys.shape[3], {qkv.data, cache.keys.data, cache.values.data},
                [&](auto width) {
                  launch(stream, {static_cast<unsigned>(tokens), kThreads}, append_kernel<E, width>,
                         cache.keys.as<E>(), cache.values.as<E>(), qkv.as<E>(),
                         positions.as<std::int32_t>(), static_cast<int>(positions.shape[1]),
                         static_cast<int>(H), static_cast<int>(C), static_cast<int>(row));
                });
}
template void append_to_cache<float>(Stream& stream, const KvCache& cache, ConstTensor qkv,
                                     ConstTensor positions);
template void append_to_cache<BFloat16>(Stream& stream, const KvCache& cache, ConstTensor qkv,
                                        ConstTensor positions);

std::int64_t decode_partials(std::int64_t tokens, std::int64_t H, std::int64_t K, std::int64_t C) {
  return tokens * H * divide_up(C, kSpan) * (kHeader + K);
}

template <class E>
void decode(Stream& stream, Tensor partials, const AttentionForward<E>& a) {
  check_head_size(a.K);
  const auto tiles = divide_up(static_cast<std::int64_t>(a.queries) * (a.H / a.G), kRows);
  const auto spans = divide_up(a.keys, kSpan);
  with_width<E>(a.K, {a.k, a.v}, [&](auto width) {
    launch(stream,
           {{static_cast<unsigned>(tiles * a.G * a.B), static_cast<unsigned>(spans)},
            kThreads,
            sizeof(DecodeShared)},
           decode_kernel<E, width>, partials.as<float>(), a, static_cast<int>(tiles));
  });
  launch(stream, {static_cast<unsigned>(a.B * a.queries * a.H), kThreads}, join_kernel<E>,
         partials.as<float>(), a, static_cast<int>(spans));
}
template void decode(Stream& stream, Tensor partials, const AttentionForward<float>& a);
template void decode(Stream& stream, Tensor partials, const AttentionForward<BFloat16>& a);

}  // namespace lockstep
