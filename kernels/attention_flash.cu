// Flash attention forward, Dao 2023, arXiv:2307.08691, algorithm 1, on tensor cores. A block has
// 128 queries of one head, a warp 32, and goes through the keys 8192 / K at a time while the next
// ones are copied. Registers set these sizes: a thread has 64 + 128 sums of scores and of out,
// whichever way. With K = 128 it has 32 KiB of queries and 2 x 32 KiB of keys and values, so that a
// multiprocessor has two blocks, one of which computes exponentials while the other multiplies.
// A block's 128 rows times 64 keys take 4.2 MFLOP for 32 KiB from L2: at 300 TFLOP/s 2.3 TB/s.
#include "kernels/attention.cuh"
#include "kernels/attention_tile.cuh"

namespace lockstep {
namespace {

constexpr int kQueries = 32 * kFlashWarps;

// The keys that any query of a block sees, and those that all see.
struct Seen {
  int any_first, any_last, all_first, all_last;
};

template <int K>
struct Shared {
  static constexpr int kKeys = 8192 / K;
  struct Stage {
    BFloat16 k[kKeys * K], v[kKeys * K];
  };
  BFloat16 q[kQueries * K];
  Stage stages[2];
  std::int32_t first[kQueries], last[kQueries];  // key that a query sees
  Seen seen;
};

// Which keys the queries of the block see; for one warp.
__device__ inline Seen seen_by(const std::int32_t (&first)[kQueries],
                               const std::int32_t (&last)[kQueries]) {
  const int lane = ptx::lane();
  Seen seen{first[lane], last[lane], first[lane], last[lane]};
  for (int i = lane + 32; i < kQueries; i += 32) {
    seen.any_first = min(seen.any_first, first[i]);
    seen.any_last = max(seen.any_last, last[i]);
    seen.all_first = max(seen.all_first, first[i]);
    seen.all_last = min(seen.all_last, last[i]);
  }
  return {warp_min(seen.any_first), -warp_min(-seen.any_last), -warp_min(-seen.all_first),
          warp_min(seen.all_last)};
}

// Scores of keys, from `key` on, that the warp's rows do not see become -infinity.
template <int kScores>
__device__ inline void mask(float (&s)[2][kScores][4], const std::int32_t* first,
                            const std::int32_t* last, int key) {
  const int lane = ptx::lane();
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 16 * m + 8 * r + lane / 4, column = key + lane % 4 * 2;
      const int from = first[row] - column, to = last[row] - column;
#pragma unroll
      for (int n = 0; n < kScores; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const bool sees = from <= 8 * n + i && 8 * n + i <= to;
          s[m][n][2 * r + i] = sees ? s[m][n][2 * r + i] : -INFINITY;
        }
    }
}

// The online softmax of a warp's rows: each lane has 4, [m][r], with three other lanes.
struct Softmax {
  float maximum[2][2], total[2][2];  // totals of the lane's own columns

  __device__ Softmax() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      maximum[i / 2][i % 2] = -1e30f;  // finite, as rows may see nothing of the first blocks
      total[i / 2][i % 2] = 0.0f;
    }
  }

  // Turns scores into exponentials relative to the new maximum, and out as well.
  template <int kScores, int kOut>
  __device__ void add(float (&s)[2][kScores][4], float (&out)[2][kOut][4], float scale) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float high = maximum[m][r];
#pragma unroll
        for (int n = 0; n < kScores; ++n)
          high = fmaxf(high, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
        high = row_max(high);
        const float correction = ptx::exp2_approximate((maximum[m][r] - high) * scale);
        maximum[m][r] = high;
        float sum = total[m][r] * correction;
#pragma unroll
        for (int n = 0; n < kScores; ++n)
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; ++i) {
            s[m][n][i] = ptx::exp2_approximate(s[m][n][i] * scale - high * scale);
            sum += s[m][n][i];
          }
        total[m][r] = sum;
#pragma unroll
        for (int n = 0; n < kOut; ++n)
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; ++i)
            out[m][n][i] *= correction;
      }
  }
};

template <int K>
__global__ void __launch_bounds__(kFlashThreads, 2)
    flash_forward_kernel(AttentionForward<BFloat16> a) {
  using Memory = Shared<K>;
  constexpr int kKeys = Memory::kKeys;
  auto& shared = *dynamic_shared<Memory>();
  const int thread = ptx::thread();
  const int head = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int begin = static_cast<int>(gridDim.z - 1 - blockIdx.z) * kQueries;  // most keys first
  const int count = min(a.queries - begin, kQueries);
  const Tile<K> q{shared.q};
  q.template copy_from<kQueries>(a.q + a.query_at(b, begin, head), a.q_stride, count);

  const int query = begin + min(thread, count - 1);
  shared.first[thread] = a.first_key(b, query);
  shared.last[thread] = a.last_key(b, query);
  __syncthreads();
  if (thread < 32) {
    const Seen all = seen_by(shared.first, shared.last);
    if (thread == 0) shared.seen = all;
  }
  __syncthreads();
  const Seen& seen = shared.seen;  // read where it is needed, as registers are short

  int key = seen.any_first / kKeys * kKeys;
  std::int64_t at = a.key_at(b, key, head);
  const auto copy_keys = [&](int first) {
    auto& to = shared.stages[first / kKeys % 2];
    const int valid = seen.any_last + 1 - first;
    Tile<K>{to.k}.template copy_from<kKeys>(a.k + at, a.kv_stride, valid);
    Tile<K>{to.v}.template copy_from<kKeys>(a.v + at, a.kv_stride, valid);
    ptx::commit_copies();
    at += kKeys * a.kv_stride;
  };

  Softmax softmax;
  float out[2][K / 8][4] = {};
  copy_keys(key);
  for (; key <= seen.any_last; key += kKeys) {
    ptx::wait_for_copies<0>();
    __syncthreads();  // these keys are there for all, and the other stage is read
    if (key + kKeys <= seen.any_last) copy_keys(key + kKeys);
    auto& stage = shared.stages[key / kKeys % 2];
    float s[2][kKeys / 8][4] = {};
    multiply_transposed(s, q, warp_row(), Tile<K>{stage.k}, 0);
    if (key < seen.all_first || key + kKeys - 1 > seen.all_last)
      mask(s, shared.first + warp_row(), shared.last + warp_row(), key);
    softmax.add(s, out, a.scale);
    unsigned p[2][kKeys / 16][4];
    to_left_side(p, s);
    multiply(out, p, Tile<K>{stage.v}, 0, 0);
  }

  const int lane = ptx::lane(), row = warp_row();
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float total = row_sum(softmax.total[m][r]), factor = 1.0f / total;
#pragma unroll
      for (int n = 0; n < K / 8; ++n)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i)
          out[m][n][i] *= factor;
      const int mine = row + 16 * m + 8 * r + lane / 4;
      if (a.lse != nullptr && lane % 4 == 0 && mine < count)
        a.lse[a.lse_at(b, begin + mine, head)] =
            (softmax.maximum[m][r] * a.scale + log2f(total)) * kLn2;
    }
  store_product(a.out + a.out_at(b, begin + row, head), static_cast<std::int64_t>(a.H) * K,
                count - row, out, q, row, 0);
}

}  // namespace

void flash_forward(Stream& stream, const AttentionForward<BFloat16>& a) {
  const dim3 grid(static_cast<unsigned>(a.H), static_cast<unsigned>(a.B),
                  static_cast<unsigned>(divide_up(a.queries, kQueries)));
  const auto run = [&](auto K) {
    launch(stream, {grid, kFlashThreads, sizeof(Shared<K>)}, flash_forward_kernel<K>, a);
  };
  if (a.K == 64)
    run(std::integral_constant<int, 64>{});
  else
    run(std::integral_constant<int, 128>{});
}

}  // namespace lockstep
