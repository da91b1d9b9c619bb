// This file computes flash attention forward on tensor cores (Dao 2023, arXiv:2307.08691, algorithm
// 1). A block has 128 queries of one head, and a warp 32. It processes 8192 / K keys at a time
// while the next ones are copied. Registers set these sizes: a thread holds 64 + 128 sums of scores
// and out, or 128 + 64 if K = 64. With K = 128 a block has 32 KiB of queries and 2 x 32 KiB of keys
// and values. So a multiprocessor has two blocks, one of which computes exponentials while the
// other multiplies. A block's 128 rows times 64 keys take 4.2 MFLOP for 32 KiB from L2. At 300
// TFLOP/s this is 2.3 TB/s.
#include "kernels/attention.cuh"
#include "kernels/attention_tile.cuh"

namespace lockstep {
namespace {

template <int K>
struct Shared {
  static constexpr int kKeys = 8192 / K;
  struct Stage {
    BFloat16 k[kKeys * K], v[kKeys * K];
  };
  BFloat16 q[kQueries * K];
  Stage stages[2];
  SeenKeys seen;
};

// Softmax is the online softmax of a warp's rows. Each lane shares 4 rows, [m][r], with three other
// lanes.
struct Softmax {
  float maximum[2][2], total[2][2];  // totals of the lane's own columns

  __device__ Softmax() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      maximum[i / 2][i % 2] = -1e30f;  // finite: rows may see no key of the first blocks
      total[i / 2][i % 2] = 0.0f;
    }
  }

  // Computes p, the exponentials of scores relative to the new maximum, as a left operand. If a
  // maximum grew, out is rescaled to it; this is rare, because maxima soon stay.
  template <int kScores, int kOut>
  __device__ void add(unsigned (&p)[2][kScores / 2][4], const float (&s)[2][kScores][4],
                      float (&out)[2][kOut][4], float scale) {
    float before[2][2];
    bool grew = false;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        before[m][r] = maximum[m][r];
#pragma unroll
        for (int n = 0; n < kScores; ++n)
          maximum[m][r] = fmaxf(maximum[m][r], fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
        maximum[m][r] = row_max(maximum[m][r]);
        grew = grew || maximum[m][r] > before[m][r];
      }
    if (__any_sync(kAllLanes, grew)) {
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float correction = ptx::exp2_approximate((before[m][r] - maximum[m][r]) * scale);
          total[m][r] *= correction;
#pragma unroll
          for (int n = 0; n < kOut; ++n)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; ++i)
              out[m][n][i] *= correction;
        }
    }
#pragma unroll
    for (int n = 0; n < kScores; ++n)
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float high = maximum[m][r] * scale;
          const float first = ptx::exp2_approximate(s[m][n][2 * r] * scale - high);
          const float second = ptx::exp2_approximate(s[m][n][2 * r + 1] * scale - high);
          total[m][r] += first + second;
          p[m][n / 2][n % 2 * 2 + r] = ptx::pack_bf16(first, second);
        }
  }
};

template <int K>
__global__ void __launch_bounds__(kFlashThreads, 2)
    flash_forward_kernel(AttentionForward<BFloat16> a) {
  using Memory = Shared<K>;
  static_assert(kTwoFit<Memory, kRaiseBytes>);
  constexpr int kKeys = Memory::kKeys;
  auto& shared = *dynamic_shared<Memory>();
  const int head = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int begin = static_cast<int>(gridDim.z - 1 - blockIdx.z) * kQueries;  // most keys first
  const int count = min(a.queries - begin, kQueries);
  const Tile<K> q{shared.q};
  q.template copy_from<kQueries>(a.q + a.query_at(b, begin, head), a.q_stride, count);

  const int query = begin + min(ptx::thread(), count - 1);
  shared.seen.fill(a.first_key(b, query), a.last_key(b, query));
  const auto& seen = shared.seen;  // read when needed, because registers are scarce

  const auto& keys = seen.block;
  int key = keys.any_first & -kKeys;
  std::int64_t at = a.key_at(b, key, head / (a.H / a.G));
  const auto copy_keys = [&](int first) {
    auto& to = shared.stages[first / kKeys & 1];
    const int valid = keys.any_last + 1 - first;
    Tile<K>{to.k}.template copy_from<kKeys>(a.k + at, a.kv_stride, valid);
    Tile<K>{to.v}.template copy_from<kKeys>(a.v + at, a.kv_stride, valid);
    ptx::commit_copies();
    at += kKeys * a.kv_stride;
  };

  Softmax softmax;
  float out[2][K / 8][4] = {};
  copy_keys(key);
  for (; key <= keys.any_last; key += kKeys) {
    ptx::wait_for_copies<0>();
    __syncthreads();  // all threads see these keys, and have read the other stage
    if (key + kKeys <= keys.any_last) copy_keys(key + kKeys);
    auto& stage = shared.stages[key / kKeys & 1];
    float s[2][kKeys / 8][4] = {};
    multiply_transposed(s, q, warp_row(), Tile<K>{stage.k}, 0);
    if (!keys.by_all(key, key + kKeys)) mask(s, seen, key);
    unsigned p[2][kKeys / 16][4];
    softmax.add(p, s, out, a.scale);
    multiply(out, p, Tile<K>{stage.v}, 0, 0);
  }

  wait_for_unread_copies();
  const int lane = ptx::lane(), row = warp_row();
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int mine = row + 16 * m + 8 * r + lane / 4;
      const float total = row_sum(softmax.total[m][r]);
      const float factor = seen.by_none(mine) ? 0.0f : 1.0f / total;
#pragma unroll
      for (int n = 0; n < K / 8; ++n)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i)
          out[m][n][i] *= factor;
      if (a.lse != nullptr && lane % 4 == 0 && begin + mine < a.queries)
        a.lse[a.lse_at(b, begin + mine, head)] =
            (softmax.maximum[m][r] * a.scale + log2f(total)) * kLn2;
    }
  store_product(a.out + a.out_at(b, begin + row, head), static_cast<std::int64_t>(a.H) * K,
                a.queries - begin - row, out, q, row, 0);
  if (a.absmax == nullptr) return;
  float most = 0.0f;
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (begin + row + 16 * m + 8 * r + lane / 4 >= a.queries) continue;
#pragma unroll
      for (int n = 0; n < K / 8; ++n)
        most = fmaxf(most, fmaxf(fabsf(out[m][n][2 * r]), fabsf(out[m][n][2 * r + 1])));
    }
  raise_stored<BFloat16>(a.absmax, most);
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
