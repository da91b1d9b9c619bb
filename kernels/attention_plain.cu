// This file computes attention without tensor cores, for fp32 and for head sizes that flash
// attention does not take. A warp has 4 rows, and a block 32. A block loops over tiles of 32 rows
// of the other operand in shared memory. Scores have one lane for each row of the tile; sums over
// the tile have one lane for each column. Backward runs twice, with queries as rows for dq and with
// keys as rows for dk and dv. So each gradient has one owner, which sums it in a fixed order.
#include "kernels/attention.cuh"

namespace lockstep {
namespace {

constexpr int kWarps = 8, kRows = 4, kBlock = kWarps * kRows, kTile = 32;
static_assert(kBlock == kTile);  // a lane represents a row of either

// Shared is the shared memory of a block: rows of up to 32 kColumns fp32, padded with zeros.
template <int kColumns>
struct Shared {
  static constexpr int kWidth = 32 * kColumns;
  // Rows of the block are transposed, so that a column of a warp's rows is one pack. Rows of a tile
  // are padded by 1, so that they lie in different banks. Both pitches avoid most bank conflicts.
  static constexpr int kOwnPitch = kBlock + 4, kTilePitch = kWidth + 1;

  alignas(16) float own[2][kWidth][kOwnPitch];
  float tile[2][kTile][kTilePitch];
  alignas(16) float weights[kWarps][kTile][kRows];
};

// Number of blocks of a kernel per multiprocessor. More would spill registers or exceed its shared
// memory.
template <int kColumns>
constexpr int kBlocks = kColumns == 2   ? 3
                        : kColumns == 4 ? 2
                                        : 1;

template <int kColumns, class E>
__device__ inline void load_own(float (&own)[32 * kColumns][kBlock + 4], const E* from,
                                std::int64_t stride, int valid, int K) {
  for (int i = static_cast<int>(threadIdx.x); i < kBlock * 32 * kColumns; i += 32 * kWarps) {
    const int row = i / (32 * kColumns), d = i % (32 * kColumns);
    own[d][row] = row < valid && d < K ? to_float(from[row * stride + d]) : 0.0f;
  }
}
template <int kColumns, class E>
__device__ inline void load_tile(float (&tile)[kTile][32 * kColumns + 1], const E* from,
                                 std::int64_t stride, int valid, int K) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * 32 * kColumns; i += 32 * kWarps) {
    const int row = i / (32 * kColumns), d = i % (32 * kColumns);
    tile[row][d] = row < valid && d < K ? to_float(from[row * stride + d]) : 0.0f;
  }
}

// Computes products[r] = row first + r of the block, times the lane's row of the tile.
template <int kWidth, int kOwnPitch, int kTilePitch>
__device__ inline void multiply(float (&products)[kRows], const float (&own)[kWidth][kOwnPitch],
                                int first, const float (&tile)[kTile][kTilePitch], int lane,
                                int K) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    products[r] = 0.0f;
  for (int d = 0; d < K; ++d) {
    float rows[kRows];
    load(rows, &own[d][first]);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      products[r] += rows[r] * tile[lane][d];
  }
}

// Adds weight r of lane j times row j of the tile to sums[r], over all j. Column c is 32 c + lane.
template <int kColumns, int kTilePitch>
__device__ inline void add_rows(float (&sums)[kRows][kColumns], float (&shared)[kTile][kRows],
                                const float (&weights)[kRows],
                                const float (&tile)[kTile][kTilePitch], int lane) {
  __syncwarp();  // the previous weights have been read
  store(shared[lane], weights);
  __syncwarp();
  for (int j = 0; j < kTile; ++j) {
    float w[kRows];
    load(w, shared[j]);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float t = tile[j][32 * c + lane];
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        sums[r][c] += w[r] * t;
    }
  }
}

// Stores a row's sums, times `factor`.
template <class E, int kColumns>
__device__ inline void store_row(E* to, const float (&sums)[kColumns], float factor, int lane,
                                 int K) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
    if (32 * c + lane < K) to[32 * c + lane] = from_float<E>(sums[c] * factor);
}

template <class E, int kColumns>
__global__ void __launch_bounds__(32 * kWarps, kBlocks<kColumns>)
    plain_forward_kernel(AttentionForward<E> a) {
  auto& shared = *dynamic_shared<Shared<kColumns>>();
  auto& q = shared.own[0];
  auto &k = shared.tile[0], &v = shared.tile[1];
  auto& weights = shared.weights[threadIdx.x / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int mine = static_cast<int>(threadIdx.x) / 32 * kRows;  // the warp's first row in the block
  const int head = static_cast<int>(blockIdx.x) % a.H, b = static_cast<int>(blockIdx.x) / a.H;
  const int begin = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kBlock;  // most keys first
  const int count = min(a.queries - begin, kBlock);
  load_own<kColumns>(q, a.q + a.query_at(b, begin, head), a.q_stride, count, a.K);

  const int query = begin + min(lane, count - 1);  // a lane represents a row of the block
  const int first = a.first_key(b, query), last = a.last_key(b, query);
  const int keys_end = 1 + warp_max(last);
  float sums[kRows][kColumns] = {}, total[kRows] = {}, maximum[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    maximum[r] = -1e30f;
  for (int key = warp_min(first) / kTile * kTile; key < keys_end; key += kTile) {
    __syncthreads();
    const auto at = a.key_at(b, key, head / (a.H / a.G));
    load_tile<kColumns>(k, a.k + at, a.kv_stride, keys_end - key, a.K);
    load_tile<kColumns>(v, a.v + at, a.kv_stride, keys_end - key, a.K);
    __syncthreads();
    float p[kRows];
    multiply(p, q, mine, k, lane, a.K);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int least = __shfl_sync(kAllLanes, first, mine + r);
      const int most = __shfl_sync(kAllLanes, last, mine + r);
      const bool sees = least <= key + lane && key + lane <= most;
      const float score = sees ? p[r] * a.scale : -INFINITY;
      const float before = maximum[r];
      maximum[r] = fmaxf(before, warp_max(score));
      const float correction = exp2f(before - maximum[r]);
      p[r] = exp2f(score - maximum[r]);
      total[r] = total[r] * correction + p[r];
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        sums[r][c] *= correction;
    }
    add_rows(sums, weights, p, v, lane);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float sum = warp_sum(total[r]);
    const bool sees_none =
        __shfl_sync(kAllLanes, first, mine + r) > __shfl_sync(kAllLanes, last, mine + r);
    if (mine + r >= count) return;
    const int row = begin + mine + r;
    store_row(a.out + a.out_at(b, row, head), sums[r], sees_none ? 0.0f : 1.0f / sum, lane, a.K);
    if (lane == 0 && a.lse != nullptr)
      a.lse[a.lse_at(b, row, head)] = (maximum[r] + log2f(sum)) * kLn2;
  }
}

template <class E, int kColumns>
__global__ void __launch_bounds__(32 * kWarps, kBlocks<kColumns>)
    plain_dq_kernel(AttentionBackward<E> a) {
  auto& shared = *dynamic_shared<Shared<kColumns>>();
  auto &q = shared.own[0], &dout = shared.own[1];
  auto &k = shared.tile[0], &v = shared.tile[1];
  auto& weights = shared.weights[threadIdx.x / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int mine = static_cast<int>(threadIdx.x) / 32 * kRows;
  const int head = static_cast<int>(blockIdx.x) % a.H, b = static_cast<int>(blockIdx.x) / a.H;
  const int kv_head = head / (a.H / a.G);
  const int begin = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kBlock;
  const int count = min(a.T - begin, kBlock);
  load_own<kColumns>(q, a.q + a.at(b, begin, head), a.stride, count, a.K);
  load_own<kColumns>(dout, a.dout + a.dout_at(b, begin, head), static_cast<std::int64_t>(a.H) * a.K,
                     count, a.K);

  const int query = begin + min(lane, count - 1);
  const int first = a.first_key(b, query);
  const auto statistics = *a.rows_at(b, query, head);
  float dq[kRows][kColumns] = {};
  for (int key = warp_min(first) / kTile * kTile; key < begin + count; key += kTile) {
    __syncthreads();
    load_tile<kColumns>(k, a.k + a.at(b, key, kv_head), a.stride, a.T - key, a.K);
    load_tile<kColumns>(v, a.v + a.at(b, key, kv_head), a.stride, a.T - key, a.K);
    __syncthreads();
    float ds[kRows], dp[kRows];
    multiply(ds, q, mine, k, lane, a.K);
    multiply(dp, dout, mine, v, lane, a.K);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int least = __shfl_sync(kAllLanes, first, mine + r);
      const float lse = __shfl_sync(kAllLanes, statistics.lse, mine + r);
      const float delta = __shfl_sync(kAllLanes, statistics.delta, mine + r);
      const bool sees = least <= key + lane && key + lane <= begin + mine + r;
      ds[r] = sees ? exp2f(ds[r] * a.scale_base_2 - lse) * (dp[r] - delta) : 0.0f;
    }
    add_rows(dq, weights, ds, k, lane);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (mine + r < count)
      store_row(a.dq + a.at(b, begin + mine + r, head), dq[r], a.scale, lane, a.K);
}

template <class E, int kColumns>
__global__ void __launch_bounds__(32 * kWarps, kBlocks<kColumns>)
    plain_dkdv_kernel(AttentionBackward<E> a) {
  auto& shared = *dynamic_shared<Shared<kColumns>>();
  auto &k = shared.own[0], &v = shared.own[1];
  auto &q = shared.tile[0], &dout = shared.tile[1];
  auto& weights = shared.weights[threadIdx.x / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int mine = static_cast<int>(threadIdx.x) / 32 * kRows;
  const int kv_head = static_cast<int>(blockIdx.x) % a.G, b = static_cast<int>(blockIdx.x) / a.G;
  const int heads = a.H / a.G, begin = static_cast<int>(blockIdx.y) * kBlock;
  const int count = min(a.T - begin, kBlock);
  load_own<kColumns>(k, a.k + a.at(b, begin, kv_head), a.stride, count, a.K);
  load_own<kColumns>(v, a.v + a.at(b, begin, kv_head), a.stride, count, a.K);

  float dk[kRows][kColumns] = {}, dv[kRows][kColumns] = {};
  for (int head = kv_head * heads; head < (kv_head + 1) * heads; ++head)
    for (int tile = begin; tile < a.T; tile += kTile) {
      const int query = min(tile + lane, a.T - 1);
      const int first = a.first_key(b, query);
      if (__any_sync(kAllLanes, first < begin + count) == 0) continue;  // the same in all warps
      __syncthreads();
      load_tile<kColumns>(q, a.q + a.at(b, tile, head), a.stride, a.T - tile, a.K);
      load_tile<kColumns>(dout, a.dout + a.dout_at(b, tile, head),
                          static_cast<std::int64_t>(a.H) * a.K, a.T - tile, a.K);
      __syncthreads();
      const auto statistics = *a.rows_at(b, query, head);
      float p[kRows], ds[kRows];
      multiply(p, k, mine, q, lane, a.K);
      multiply(ds, v, mine, dout, lane, a.K);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int key = begin + mine + r;
        const bool sees = tile + lane < a.T && first <= key && key <= query;
        p[r] = sees ? exp2f(p[r] * a.scale_base_2 - statistics.lse) : 0.0f;
        ds[r] = p[r] * (ds[r] - statistics.delta);
      }
      add_rows(dv, weights, p, dout, lane);
      add_rows(dk, weights, ds, q, lane);
    }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (mine + r >= count) return;
    const auto at = a.at(b, begin + mine + r, kv_head);
    store_row(a.dk + at, dk[r], a.scale, lane, a.K);
    store_row(a.dv + at, dv[r], 1.0f, lane, a.K);
  }
}

// Calls f with an integral constant, the number of groups of 32 columns that hold a head: 2, 4 or
// 8.
template <class F>
void with_columns(const Stream& stream, std::int64_t K, F&& f) {
  check_head_size(K);
  const auto most = most_shared_bytes(stream);
  LOCKSTEP_CHECK(K <= 128 || static_cast<std::int64_t>(sizeof(Shared<8>)) <= most, "heads of ", K,
                 " elements; this GPU, whose blocks have ", most / 1024,
                 " KiB of shared memory, takes 128 at most");
  if (K <= 64)
    f(std::integral_constant<int, 2>{});
  else if (K <= 128)
    f(std::integral_constant<int, 4>{});
  else
    f(std::integral_constant<int, 8>{});
}

dim3 plain_grid(int heads, int B, int tokens) {
  return {static_cast<unsigned>(heads * B), static_cast<unsigned>(divide_up(tokens, kBlock))};
}

}  // namespace

template <class E>
void plain_forward(Stream& stream, const AttentionForward<E>& a) {
  with_columns(stream, a.K, [&](auto columns) {
    launch(stream, {plain_grid(a.H, a.B, a.queries), 32 * kWarps, sizeof(Shared<columns>)},
           plain_forward_kernel<E, columns>, a);
  });
}
template void plain_forward(Stream& stream, const AttentionForward<float>& a);
template void plain_forward(Stream& stream, const AttentionForward<BFloat16>& a);

template <class E>
void plain_backward(Stream& stream, const AttentionBackward<E>& a) {
  with_columns(stream, a.K, [&](auto columns) {
    launch(stream, {plain_grid(a.G, a.B, a.T), 32 * kWarps, sizeof(Shared<columns>)},
           plain_dkdv_kernel<E, columns>, a);
    launch(stream, {plain_grid(a.H, a.B, a.T), 32 * kWarps, sizeof(Shared<columns>)},
           plain_dq_kernel<E, columns>, a);
  });
}
template void plain_backward(Stream& stream, const AttentionBackward<float>& a);
template void plain_backward(Stream& stream, const AttentionBackward<BFloat16>& a);

}  // namespace lockstep
