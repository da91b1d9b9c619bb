// This file computes flash attention backward on tensor cores (Dao 2023, arXiv:2307.08691,
// algorithm 2). One kernel holds keys and loops over the queries for dk and dv. The other holds
// queries and loops over the keys for dq. Scores and dp are computed twice, 7 matmuls in place of
// 5. But each gradient has one owner, which sums it in registers in a fixed order. Adding dq in
// memory would need blocks that wait for each other, or T / 64 copies of it.
//
// A thread holds 2 x 64 sums of gradients and 2 x 32 of scores and dp. For dq with K = 64, these
// are 64 and 2 x 64. For dk and dv a warp has 32 keys and 64 columns. If K = 128, two warps share
// 32 keys. Each computes p and ds for 32 of 64 queries and passes its fragments to the other.
//
// If K = 128, an mma (4096 FLOP) reads 213 to 224 bytes of shared memory; in forward it reads 160.
// A step takes 4.2 MFLOP for 32 KiB from L2 for dk and dv, or 3.1 MFLOP for 16 KiB for dq.
#include "kernels/attention.cuh"
#include "kernels/attention_tile.cuh"

namespace lockstep {
namespace {

constexpr int kQueryBlock = 64;  // queries of a step of the kernel of dk and dv

template <int K>
struct KeysShared {
  static constexpr int kSharers = K / 64;  // warps with the same keys
  static constexpr int kKeys = 32 * kFlashWarps / kSharers;
  struct Stage {
    BFloat16 q[kQueryBlock * K], dout[kQueryBlock * K];
  };
  using Fragments = unsigned[2][2][32][4];  // a matrix [32, 32]: [m][k][lane]
  BFloat16 k[kKeys * K], v[kKeys * K];
  Stage stages[2];
  Fragments p[kSharers > 1 ? kFlashWarps : 1], ds[kSharers > 1 ? kFlashWarps : 1];
  RowStatistics rows[2][kQueryBlock];
};

// Returns the last block of queries in which some query sees a key before `end`. All threads of a
// block must call it.
__device__ inline int last_query_block(const KeyRange* ranges, int blocks, int end, int* shared) {
  int last = 0;
  for (int i = ptx::thread(); i < blocks; i += kFlashThreads)
    if (ranges[i].first < end) last = i;
  last = warp_max(last);
  if (ptx::lane() == 0) shared[ptx::thread() / 32] = last;
  __syncthreads();
  for (int w = 0; w < kFlashWarps; ++w)
    last = max(last, shared[w]);
  __syncthreads();
  return last;
}

// Computes p = e^(scores - lse) and ds = p (dp - delta) in place, with keys as rows and queries as
// columns. For queries past the last one, q, dout, lse and delta are 0, so they add nothing.
__device__ inline void probabilities(float (&p)[2][4][4], float (&ds)[2][4][4],
                                     const RowStatistics* rows, float scale) {
  const int column = ptx::lane() % 4 * 2;
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const RowStatistics row = rows[8 * n + column + i];
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int r = i; r < 4; r += 2) {
          p[m][n][r] = ptx::exp2_approximate(p[m][n][r] * scale - row.lse);
          ds[m][n][r] = p[m][n][r] * (ds[m][n][r] - row.delta);
        }
    }
}

// Sets scores to -infinity if the query does not see the key. Rows are keys, from `key` on; columns
// are queries, from `query` on.
__device__ inline void mask_keys(float (&s)[2][4][4], const AttentionBackward<BFloat16>& a, int b,
                                 int key, int query) {
  const int row = key + ptx::lane() / 4, column = query + ptx::lane() % 4 * 2;
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int last = column + 8 * n + i, first = a.first_key(b, min(last, a.T - 1));
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int j = row + 16 * m + 8 * r;
          s[m][n][2 * r + i] = first <= j && j <= last ? s[m][n][2 * r + i] : -INFINITY;
        }
    }
}

// give and take pass fragments through shared memory, unchanged.
__device__ inline void give(unsigned (&shared)[2][2][32][4], const unsigned (&a)[2][2][4]) {
  const int lane = ptx::lane();
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int k = 0; k < 2; ++k)
      copy_pack(shared[m][k][lane], a[m][k]);
}
__device__ inline void take(unsigned (&a)[2][2][4], const unsigned (&shared)[2][2][32][4]) {
  const int lane = ptx::lane();
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int k = 0; k < 2; ++k)
      copy_pack(a[m][k], shared[m][k][lane]);
}

template <int K>
__global__ void __launch_bounds__(kFlashThreads, 2)
    flash_keys_kernel(AttentionBackward<BFloat16> a, const KeyRange* ranges) {
  using Memory = KeysShared<K>;
  static_assert(kTwoFit<Memory, 0>);
  constexpr int kSharers = Memory::kSharers, kKeys = Memory::kKeys;
  auto& shared = *dynamic_shared<Memory>();
  const int g = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int begin = static_cast<int>(blockIdx.z) * kKeys, count = min(a.T - begin, kKeys);
  const Tile<K> k{shared.k}, v{shared.v};
  k.template copy_from<kKeys>(a.k + a.at(b, begin, g), a.stride, count);
  v.template copy_from<kKeys>(a.v + a.at(b, begin, g), a.stride, count);

  const int blocks = static_cast<int>(divide_up(a.T, kQueryBlock)), heads = a.H / a.G;
  ranges += b * blocks;
  const int first = begin / kQueryBlock;
  const int last =
      last_query_block(ranges, blocks, begin + count, reinterpret_cast<int*>(&shared.rows[0][0]));
  // Steps go head by head, each from block `first` to `last`. The next step is copied while one is
  // computed.
  const auto behind = [&](int at) { return at == last ? first : at + 1; };
  int next_head = g * heads, next_block = first;
  const auto copy_next = [&](int stage) {
    const int query = next_block * kQueryBlock;
    auto& to = shared.stages[stage];
    Tile<K>{to.q}.template copy_from<kQueryBlock>(a.q + a.at(b, query, next_head), a.stride,
                                                  a.T - query);
    Tile<K>{to.dout}.template copy_from<kQueryBlock>(
        a.dout + a.dout_at(b, query, next_head), static_cast<std::int64_t>(a.H) * K, a.T - query);
    const int i = ptx::thread();
    if (i < kQueryBlock)
      ptx::copy_async<8>(&shared.rows[stage][i], a.rows_at(b, query + i, next_head),
                         query + i < a.T);
    ptx::commit_copies();
    next_block = behind(next_block);
    next_head += next_block == first ? 1 : 0;
  };

  float dk[2][8][4] = {}, dv[2][8][4] = {};
  copy_next(0);
  const int steps = (last - first + 1) * heads;
  for (int step = 0, block = first; step < steps; ++step, block = behind(block)) {
    ptx::wait_for_copies<0>();
    __syncthreads();  // all threads see this step's queries, and have read the other stage
    if (step + 1 < steps) copy_next((step + 1) % 2);
    const bool masks = ranges[block].last > begin || block * kQueryBlock < begin + kKeys;
    auto& stage = shared.stages[step % 2];
    const Tile<K> q{stage.q}, dout{stage.dout};
    const auto add = [&](const unsigned(&p)[2][2][4], const unsigned(&ds)[2][2][4], int query) {
      const int column = ptx::thread() / 32 % kSharers * 64;
      multiply(dv, p, dout, query, column);
      multiply(dk, ds, q, query, column);
    };
#pragma unroll 1
    for (int i = 0; i < 2 / kSharers; ++i) {
      const int warp = ptx::thread() / 32, row = warp / kSharers * 32;
      const int query = kSharers > 1 ? warp % 2 * 32 : i * 32;
      if (kSharers == 1 && block * kQueryBlock + query + 32 <= begin + row) continue;  // all later
      float s[2][4][4] = {}, dp[2][4][4] = {};
      multiply_transposed(s, k, row, q, query);
      if (masks) mask_keys(s, a, b, begin + row, block * kQueryBlock + query);
      multiply_transposed(dp, v, row, dout, query);
      probabilities(s, dp, shared.rows[step % 2] + query, a.scale_base_2);
      unsigned p[2][2][4], ds[2][2][4];
      to_left_side(p, s);
      to_left_side(ds, dp);
      if constexpr (kSharers > 1) {
        give(shared.p[warp], p);
        give(shared.ds[warp], ds);
      }
      add(p, ds, query);
    }
    if constexpr (kSharers > 1) {
      __syncthreads();
      const int warp = ptx::thread() / 32;
      unsigned p[2][2][4], ds[2][2][4];
      take(p, shared.p[warp ^ 1]);
      take(ds, shared.ds[warp ^ 1]);
      add(p, ds, (warp ^ 1) % 2 * 32);
    }
  }

  wait_for_unread_copies();
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        dk[m][n][i] *= a.scale;
  const int row = ptx::thread() / 32 / kSharers * 32, column = ptx::thread() / 32 % kSharers * 64;
  const auto at = a.at(b, begin + row, g) + column;
  // k and v are no longer needed, so the gradients are staged in their memory.
  store_product(a.dk + at, a.stride, count - row, dk, k, row, column);
  store_product(a.dv + at, a.stride, count - row, dv, v, row, column);
}

template <int K>
struct QueriesShared {
  static constexpr int kKeys = 4096 / K;
  struct Stage {
    BFloat16 k[kKeys * K], v[kKeys * K];
  };
  BFloat16 q[kQueries * K], dout[kQueries * K];
  Stage stages[2];
  SeenKeys seen;
  RowStatistics rows[kQueries];
};

template <int K>
__global__ void __launch_bounds__(kFlashThreads, 2)
    flash_queries_kernel(AttentionBackward<BFloat16> a) {
  using Memory = QueriesShared<K>;
  static_assert(kTwoFit<Memory, 0>);
  constexpr int kKeys = Memory::kKeys;
  auto& shared = *dynamic_shared<Memory>();
  const int head = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int begin = static_cast<int>(gridDim.z - 1 - blockIdx.z) * kQueries;  // most keys first
  const int count = min(a.T - begin, kQueries), g = head / (a.H / a.G);
  const Tile<K> q{shared.q}, dout{shared.dout};
  q.template copy_from<kQueries>(a.q + a.at(b, begin, head), a.stride, count);
  dout.template copy_from<kQueries>(a.dout + a.dout_at(b, begin, head),
                                    static_cast<std::int64_t>(a.H) * K, count);
  const int query = begin + min(ptx::thread(), count - 1);
  shared.rows[ptx::thread()] = *a.rows_at(b, query, head);
  shared.seen.fill(a.first_key(b, query), query);
  const auto& seen = shared.seen;

  const int end = begin + count;
  int key = seen.block.any_first & -kKeys;
  std::int64_t at = a.at(b, key, g);
  const auto copy_keys = [&](int first_key) {
    auto& to = shared.stages[first_key / kKeys & 1];
    Tile<K>{to.k}.template copy_from<kKeys>(a.k + at, a.stride, end - first_key);
    Tile<K>{to.v}.template copy_from<kKeys>(a.v + at, a.stride, end - first_key);
    ptx::commit_copies();
    at += kKeys * a.stride;
  };

  float dq[2][K / 8][4] = {};
  copy_keys(key);
  for (; key < end; key += kKeys) {
    ptx::wait_for_copies<0>();
    __syncthreads();  // all threads see these keys, and have read the other stage
    if (key + kKeys < end) copy_keys(key + kKeys);
    const KeyBounds& mine = seen.warps[warp_row() / 32];
    if (mine.by_none(key, key + kKeys)) continue;
    auto& stage = shared.stages[key / kKeys & 1];
    const Tile<K> k{stage.k}, v{stage.v};
    float s[2][kKeys / 8][4] = {}, dp[2][kKeys / 8][4] = {};
    multiply_transposed(s, q, warp_row(), k, 0);
    if (!mine.by_all(key, key + kKeys)) mask(s, seen, key);
    multiply_transposed(dp, dout, warp_row(), v, 0);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const auto row = shared.rows[warp_row() + 16 * m + 8 * r + ptx::lane() / 4];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; ++i)
            dp[m][n][i] = ptx::exp2_approximate(s[m][n][i] * a.scale_base_2 - row.lse) *
                          (dp[m][n][i] - row.delta);
      }
    unsigned ds[2][kKeys / 16][4];
    to_left_side(ds, dp);
    multiply(dq, ds, k, 0, 0);
  }

  wait_for_unread_copies();
  const int row = warp_row();
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < K / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        dq[m][n][i] *= a.scale;
  store_product(a.dq + a.at(b, begin + row, head), a.stride, count - row, dq, q, row, 0);
}

// Computes the range of a block of queries with one warp.
__global__ void key_ranges_kernel(KeyRange* ranges, AttentionBackward<BFloat16> a) {
  const int block = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  int first = a.T, last = 0;
  for (int i = static_cast<int>(threadIdx.x); i < kQueryBlock; i += 32) {
    const int start = a.first_key(b, min(block * kQueryBlock + i, a.T - 1));
    first = min(first, start);
    last = max(last, start);
  }
  first = warp_min(first);
  last = warp_max(last);
  if (threadIdx.x == 0) ranges[b * static_cast<int>(gridDim.x) + block] = {first, last};
}

}  // namespace

Shape key_ranges(std::int64_t B, std::int64_t T) {
  return {B, divide_up(T, kQueryBlock), 2};
}

bool has_flash_backward(const Stream& stream, std::int64_t K) {
  const auto bytes = K == 64 ? std::max(sizeof(KeysShared<64>), sizeof(QueriesShared<64>))
                             : std::max(sizeof(KeysShared<128>), sizeof(QueriesShared<128>));
  return static_cast<std::int64_t>(bytes) <= most_shared_bytes(stream);
}

void flash_backward(Stream& stream, Tensor ranges, const AttentionBackward<BFloat16>& a) {
  const auto grid = [&](int heads, int block) {
    return dim3(static_cast<unsigned>(heads), static_cast<unsigned>(a.B),
                static_cast<unsigned>(divide_up(a.T, block)));
  };
  auto* key_ranges = reinterpret_cast<KeyRange*>(ranges.data);
  launch(stream,
         {{static_cast<unsigned>(divide_up(a.T, kQueryBlock)), static_cast<unsigned>(a.B)}, 32},
         key_ranges_kernel, key_ranges, a);
  const auto run = [&](auto K) {
    launch(stream, {grid(a.G, KeysShared<K>::kKeys), kFlashThreads, sizeof(KeysShared<K>)},
           flash_keys_kernel<K>, a, key_ranges);
    launch(stream, {grid(a.H, kQueries), kFlashThreads, sizeof(QueriesShared<K>)},
           flash_queries_kernel<K>, a);
  };
  if (a.K == 64)
    run(std::integral_constant<int, 64>{});
  else
    run(std::integral_constant<int, 128>{});
}

}  // namespace lockstep
