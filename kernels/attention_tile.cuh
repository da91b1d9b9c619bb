// This file defines tiles of bf16 in shared memory, and functions with which warps multiply them on
// tensor cores, for flash attention. A warp has 32 rows of each result, so that what it loads of
// the right operand serves two fragments of the left. With 16 rows, shared memory would be slower
// than the tensor cores.
//
//   result [32, columns]: d[m][n][i] is at row 16 m + 8 (i / 2) + lane / 4,
//     column 8 n + 2 (lane % 4) + i % 2
//   left operand [32, columns]: fragment a[m][k] has columns 16 k to 16 k + 15
#pragma once

#include "kernels/device.cuh"
#include "kernels/ptx.cuh"

namespace lockstep {

inline constexpr int kFlashWarps = 4, kFlashThreads = 32 * kFlashWarps;
inline constexpr int kQueries = 32 * kFlashWarps;  // of a block that holds queries

// Whether two blocks with this dynamic and static shared memory fit on a multiprocessor of an H100.
// The system reserves 1 KiB for each block. tests/gpu/budgets.py compares kStaticBytes with the
// compiler's value.
template <class Shared, int kStaticBytes>
constexpr bool kTwoFit = 2 * (sizeof(Shared) + kStaticBytes + 1024) <= 228 << 10;
// Static shared memory of raise() before dynamic memory that is aligned to 1 KiB.
inline constexpr int kRaiseBytes = 1024;

// Waits for copies that no step of a loop waited for. They occur in a block without a step, whose
// shared memory is about to receive a result. Copies of the last step are already complete.
__device__ inline void wait_for_unread_copies() {
  ptx::wait_for_copies<0>();
  __syncthreads();
}

// Returns the first row of the warp in the block.
__device__ inline int warp_row() {
  return ptx::thread() / 32 * 32;
}

// Tile is rows of K bf16. Pack c (8 elements) of row r is at c ^ r % 8. ldmatrix reads one pack of
// each of 8 rows at once, and these lie in different banks.
template <int K>
struct Tile {
  static constexpr int kRowBytes = 2 * K;

  BFloat16* data;

  __device__ static int place(int row, int c) { return row * K + (c ^ row % 8) * 8; }

  // by_columns and by_rows return the address that the lane passes to ldmatrix. It loads the
  // [16, 16] elements at row `row`, column 0, as quarters column by column or row by row. Elements
  // at column c are at the address ^ 2 c. One address serves all columns, because one instruction
  // is cheaper than one register.
  __device__ unsigned by_columns(int row) const {
    const int lane = ptx::lane();
    return ptx::shared_address(data + place(row + lane % 16, lane / 16));
  }
  __device__ unsigned by_rows(int row) const {
    const int lane = ptx::lane();
    return ptx::shared_address(data + place(row + lane / 16 * 8 + lane % 8, lane / 8 % 2));
  }

  // Starts to copy kRows rows; those from `valid` on become zeros.
  template <int kRows>
  __device__ void copy_from(const BFloat16* from, std::int64_t stride, int valid) const {
    constexpr int kPacks = K / 8, kRowsAtOnce = kFlashThreads / kPacks;
    static_assert(kRowsAtOnce % 8 == 0);
    const int first = ptx::thread() / kPacks;
    const int c = ptx::thread() % kPacks;
    BFloat16* to = data + place(first, c);
    from += first * stride + c * 8;
#pragma unroll
    for (int i = 0; i < kRows; i += kRowsAtOnce) {
      ptx::copy_async<16>(to + i * K, from, first + i < valid);
      from += kRowsAtOnce * stride;
    }
  }
};

// Computes d += a b^T over K, for 32 rows of a from a_row on and 8 kColumns rows of b from b_row
// on. Both are multiples of 16.
template <int kColumns, int K>
__device__ inline void multiply_transposed(float (&d)[2][kColumns][4], Tile<K> a, int a_row,
                                           Tile<K> b, int b_row) {
  const unsigned left_at = a.by_columns(a_row), right_at = b.by_rows(b_row);
#pragma unroll
  for (int k = 0; k < K; k += 16) {
    unsigned left[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m)
      ptx::load_matrices(left[m], (left_at ^ 2 * k) + 16 * m * Tile<K>::kRowBytes);
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      unsigned right[4];
      ptx::load_matrices(right, (right_at ^ 2 * k) + 8 * n * Tile<K>::kRowBytes);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        ptx::mma(d[m][n], left[m], right[0], right[1]);
        ptx::mma(d[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// Computes d += a b, for 16 kSteps rows of b from `row` on and its columns from `column` on. Both
// are multiples of 16.
template <int kColumns, int kSteps, int K>
__device__ inline void multiply(float (&d)[2][kColumns][4], const unsigned (&a)[2][kSteps][4],
                                Tile<K> b, int row, int column) {
  const unsigned right_at = b.by_columns(row) ^ 2 * column;
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      unsigned right[4];
      ptx::load_matrices_transposed(right, (right_at ^ 16 * n) + 16 * k * Tile<K>::kRowBytes);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        ptx::mma(d[m][n], a[m][k], right[0], right[1]);
        ptx::mma(d[m][n + 1], a[m][k], right[2], right[3]);
      }
    }
}

// Converts a result, rounded to bf16, to the left operand of the next matmul.
template <int kColumns>
__device__ inline void to_left_side(unsigned (&a)[2][kColumns / 2][4],
                                    const float (&d)[2][kColumns][4]) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < kColumns; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        a[m][n / 2][n % 2 * 2 + r] = ptx::pack_bf16(d[m][n][2 * r], d[m][n][2 * r + 1]);
}

// KeyBounds holds the keys that any of some queries sees, and the keys that all of them see.
struct KeyBounds {
  int any_first, any_last, all_first, all_last;

  __device__ bool by_none(int begin, int end) const { return end <= any_first || any_last < begin; }
  __device__ bool by_all(int begin, int end) const {
    return all_first <= begin && end <= all_last + 1;
  }
};

// SeenKeys holds the keys that the queries of a block see: query i sees first[i] to last[i].
struct SeenKeys {
  std::int32_t first[kQueries], last[kQueries];
  KeyBounds warps[kFlashWarps];  // by the queries of a warp
  KeyBounds block;

  __device__ bool by_none(int query) const { return first[query] > last[query]; }

  // Called by all threads, each for the query with the thread's number.
  __device__ void fill(int first_key, int last_key) {
    const int i = ptx::thread();
    first[i] = first_key;
    last[i] = last_key;
    const KeyBounds mine{warp_min(first_key), warp_max(last_key), warp_max(first_key),
                         warp_min(last_key)};
    if (i % 32 == 0) warps[i / 32] = mine;
    __syncthreads();
    if (i == 0) {
      KeyBounds all = warps[0];
      for (const KeyBounds& w : warps)
        all = {min(all.any_first, w.any_first), max(all.any_last, w.any_last),
               max(all.all_first, w.all_first), min(all.all_last, w.all_last)};
      block = all;
    }
    __syncthreads();
  }
};

// Sets scores of keys, from `key` on, to -infinity if the warp's queries do not see them.
template <int kScores>
__device__ inline void mask(float (&s)[2][kScores][4], const SeenKeys& seen, int key) {
  const int column = key + ptx::lane() % 4 * 2;
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_row() + 16 * m + 8 * r + ptx::lane() / 4;
      const int from = seen.first[row] - column, to = seen.last[row] - column;
#pragma unroll
      for (int n = 0; n < kScores; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const bool sees = from <= 8 * n + i && 8 * n + i <= to;
          s[m][n][2 * r + i] = sees ? s[m][n][2 * r + i] : -INFINITY;
        }
    }
}

// Copies 16 bytes.
__device__ inline void copy_pack(unsigned (&to)[4], const unsigned (&from)[4]) {
  *reinterpret_cast<Pack<unsigned, 4>*>(to) = *reinterpret_cast<const Pack<unsigned, 4>*>(from);
}

// Writes the first `valid` rows of a result. It stages them in 32 rows of a tile, from `row` and
// `column` on, that no other warp uses.
template <int kColumns, int K>
__device__ inline void store_product(BFloat16* to, std::int64_t stride, int valid,
                                     const float (&d)[2][kColumns][4], Tile<K> through, int row,
                                     int column) {
  const int lane = ptx::lane(), pack = column / 8;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < kColumns; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int place = through.place(row + 16 * m + 8 * r + lane / 4, pack + n);
        *reinterpret_cast<unsigned*>(through.data + place + lane % 4 * 2) =
            ptx::pack_bf16(d[m][n][2 * r], d[m][n][2 * r + 1]);
      }
  __syncwarp();
  using Word = Pack<BFloat16, 8>;
#pragma unroll
  for (int i = lane; i < 32 * kColumns; i += 32) {
    const int r = i / kColumns, c = i % kColumns;
    if (r < valid)
      *reinterpret_cast<Word*>(to + r * stride + c * 8) =
          *reinterpret_cast<const Word*>(through.data + through.place(row + r, pack + c));
  }
}

// row_max and row_sum return the maximum and the sum of v over the four lanes that have the same
// rows of a result.
__device__ inline float row_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, 1));
  return fmaxf(v, __shfl_xor_sync(kAllLanes, v, 2));
}
__device__ inline float row_sum(float v) {
  v += __shfl_xor_sync(kAllLanes, v, 1);
  return v + __shfl_xor_sync(kAllLanes, v, 2);
}

}  // namespace lockstep
