// This file defines the layout of rows that norms have on a GPU. A row of D elements belongs to
// `threads` threads, in whole warps. Each thread holds kPacks packs of it in registers, so that
// memory is read once. A block has several rows if they are short.
#pragma once

#include <algorithm>

#include "core/arena.h"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"

namespace lockstep {

inline constexpr int kMostRows = 8;  // of a block

struct RowLayout {
  int threads = 0;  // of a row
  int rows = 0;     // of a block
  dim3 block() const { return {static_cast<unsigned>(threads), static_cast<unsigned>(rows)}; }
};

// The most threads of a row, for __launch_bounds__. With 256, each thread has 255 registers, and
// rows of up to 8192 bf16 need no more threads. Longer rows spill registers.
template <int kPacks>
constexpr int kRowThreads = kPacks <= 4 ? 256 : 512;

template <int kPacks, int kWidth>
RowLayout row_layout(std::int64_t D) {
  const auto warps = divide_up(std::max<std::int64_t>(D, 1), 32 * kPacks * kWidth);
  const int threads = static_cast<int>(warps) * 32;
  LOCKSTEP_CHECK(threads <= kRowThreads<kPacks>, "rows of ", D, " elements; a GPU takes ",
                 kRowThreads<kPacks> * kPacks * kWidth, " at most",
                 kWidth == 1 ? ", and more of a multiple of 8" : "");
  return {threads, std::clamp(256 / threads, 1, kMostRows)};
}

// Calls f(packs, width) with integral constants. A thread holds `packs` packs of `width` elements
// of a row of D elements at these addresses.
template <class T, class F>
void with_row_packs(std::int64_t D, std::initializer_list<const void*> addresses, F&& f) {
  with_width<T>(D, addresses, [&](auto width) {
    if (D <= kRowThreads<4> * 4 * width)
      f(std::integral_constant<int, 4>{}, width);
    else
      f(std::integral_constant<int, 8>{}, width);
  });
}

// Calls body(pack, d) for the packs of this thread's row, with d the first element of each. The
// loop is unrolled unless kUnroll is 1, so that arrays with an element for each pack stay in
// registers.
template <int kPacks, int kWidth, int kUnroll = kPacks, class Body>
__device__ inline void for_packs(int D, Body&& body) {
#pragma unroll kUnroll
  for (int p = 0; p < kPacks; ++p) {
    const int d = (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kWidth;
    if (d < D) body(p, d);
  }
}

// Replaces each v by its sum over the threads of this thread's row.
template <int kCount>
__device__ inline void row_sums(float (&v)[kCount], float (&shared)[kMostRows][32]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    v[i] = warp_sum(v[i]);
  if (blockDim.x == 32) return;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float* partial = shared[threadIdx.y];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (lane == 0) partial[warp] = v[i];
    __syncthreads();
    v[i] = warp_sum(lane < warps ? partial[lane] : 0.0f);
    __syncthreads();
  }
}

// Returns the number of blocks that share the rows of a backward pass: two for each multiprocessor
// of an H100 or H200. It does not depend on the GPU, so that sums have one order and memory one
// size.
constexpr std::int64_t gradient_blocks(std::int64_t N) {
  return std::min<std::int64_t>(N, 264);
}

// Calls body(row, valid) for the rows of this block. All its threads do so together; past the last
// row, valid is false.
template <class Body>
__device__ inline void for_rows_of_block(std::int64_t N, Body&& body) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (auto first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; first < N;
       first += stride) {
    const std::int64_t row = first + threadIdx.y;
    body(row, row < N);
  }
}

// Computes out [D] = the sum of shared [rows of the block, D], which all its threads have just
// written.
__device__ inline void store_shared_sums(float* out, const float* shared, int D) {
  __syncthreads();
  const int threads = static_cast<int>(blockDim.x * blockDim.y);
  for (int d = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); d < D; d += threads) {
    float sum = 0.0f;
    for (int r = 0; r < static_cast<int>(blockDim.y); ++r)
      sum += shared[r * D + d];
    out[d] = sum;
  }
}

// Sets row blockIdx.x of partial [blocks, D] to the sum of `sums` over the rows of the block. It
// needs sums_bytes of dynamic shared memory.
template <int kPacks, int kWidth>
__device__ inline void store_block_sums(float* partial, const float (&sums)[kPacks][kWidth],
                                        int D) {
  float* row = partial + static_cast<std::int64_t>(blockIdx.x) * D;
  if (blockDim.y == 1) {
    for_packs<kPacks, kWidth>(D, [&](int p, int d) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        row[d + i] = sums[p][i];
    });
    return;
  }
  float* shared = dynamic_shared<float>();  // [rows of the block, D]
  for_packs<kPacks, kWidth>(D, [&](int p, int d) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      shared[static_cast<int>(threadIdx.y) * D + d + i] = sums[p][i];
  });
  store_shared_sums(row, shared, D);
}

inline std::int64_t sums_bytes(const RowLayout& layout, std::int64_t D) {
  return layout.rows == 1 ? 0 : layout.rows * D * static_cast<std::int64_t>(sizeof(float));
}

// Sets row b of partial [blocks, D] to the sum of every `blocks`th row of x [N, D], from the b-th
// on.
void sum_columns(Stream& stream, Tensor partial, ConstTensor x);

// Adds the sum of the rows of partial [blocks, D] to out [D], in a fixed order.
void add_block_sums(Stream& stream, Tensor out, ConstTensor partial);

}  // namespace lockstep
