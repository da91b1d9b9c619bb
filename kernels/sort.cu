// This file implements a radix sort that begins with the least significant digit of 8 bits. For
// each digit, the blocks count how often each value occurs in their tile of keys. Then each block
// computes from all counts where its keys go. Its warps own a part of the tile each and place their
// keys in order.
#include <array>
#include <bit>

#include "core/integer.h"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"
#include "kernels/sort.cuh"

namespace lockstep {
namespace {

constexpr int kBits = 8, kDigits = 1 << kBits;
constexpr int kThreads = kDigits;  // one for each value of a digit
constexpr int kWarps = kThreads / 32;
constexpr int kItems = 8;  // keys of a thread
constexpr int kTile = kThreads * kItems;

__device__ inline int digit_of(int key, int shift) {
  return key >> shift & (kDigits - 1);
}

// counts [tiles, kDigits]
__global__ void __launch_bounds__(kThreads)
    count_digits_kernel(int* counts, const int* keys, int N, int shift) {
  __shared__ int count[kDigits];
  count[threadIdx.x] = 0;
  __syncthreads();
  const int begin = static_cast<int>(blockIdx.x) * kTile;
  const int end = std::min(begin + kTile, N);
  for (int n = begin + static_cast<int>(threadIdx.x); n < end; n += kThreads)
    atomicAdd(&count[digit_of(keys[n], shift)], 1);
  __syncthreads();
  counts[blockIdx.x * kDigits + threadIdx.x] = count[threadIdx.x];
}

// Returns the sum of v over the threads before this one.
__device__ inline int sum_before(int v) {
  __shared__ int sums[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int sum = v;  // over the lanes up to this one
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int before = __shfl_up_sync(kAllLanes, sum, offset);
    if (lane >= offset) sum += before;
  }
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w)
    sum += sums[w];
  return sum - v;
}

// order is nullptr in the first pass, where key n is number n.
__global__ void __launch_bounds__(kThreads)
    place_keys_kernel(int* sorted_keys, int* sorted_order, const int* counts, const int* keys,
                      const int* order, int N, int shift) {
  // Holds first the number of keys of each digit that a warp has counted, then the place of its
  // first one.
  __shared__ int places[kWarps][kDigits];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int digit = lane; digit < kDigits; digit += 32)
    places[warp][digit] = 0;
  __syncwarp();
  const int begin = static_cast<int>(blockIdx.x) * kTile + warp * (kItems * 32) + lane;
  int key[kItems], rank[kItems];  // among the keys of the warp that have the same digit
#pragma unroll
  for (int i = 0; i < kItems; ++i)
    key[i] = begin + i * 32 < N ? keys[begin + i * 32] : -1;  // -1: the last of the last digit
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int digit = digit_of(key[i], shift);
    const unsigned same = __match_any_sync(kAllLanes, digit);
    const int before = __popc(same & ((1u << lane) - 1));
    rank[i] = places[warp][digit] + before;
    __syncwarp();
    if (before == 0) places[warp][digit] += __popc(same);
    __syncwarp();
  }
  __syncthreads();

  const int digit = static_cast<int>(threadIdx.x);
  int all = 0, before = 0;  // keys of this digit: in all tiles, in those before this one
#pragma unroll 8
  for (int tile = 0; tile < static_cast<int>(gridDim.x); ++tile) {
    const int count = counts[tile * kDigits + digit];
    all += count;
    if (tile < static_cast<int>(blockIdx.x)) before += count;
  }
  int place = sum_before(all) + before;
  for (int w = 0; w < kWarps; ++w) {
    const int count = places[w][digit];
    places[w][digit] = place;
    place += count;
  }
  __syncthreads();

#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int n = begin + i * 32;
    if (n >= N) break;
    const int to = places[warp][digit_of(key[i], shift)] + rank[i];
    sorted_keys[to] = key[i];
    sorted_order[to] = order == nullptr ? n : order[n];
  }
}

}  // namespace

SortedKeys sort_keys(Stream& stream, Arena& scratch, ConstTensor keys, std::int64_t bound) {
  const auto N = keys.elements(), tiles = divide_up(N, kTile);
  std::array<SortedKeys, 2> sorted;  // a pass reads one and writes the other
  for (auto& s : sorted)
    s = {scratch.allocate("sorted_keys", DType::int32, {N}),
         scratch.allocate("sorted_order", DType::int32, {N})};
  const auto counts = scratch.allocate("digit_counts", DType::int32, {tiles, kDigits});
  const auto largest = static_cast<std::uint64_t>(std::max<std::int64_t>(bound - 1, 1));
  const auto passes = divide_up(static_cast<std::int64_t>(std::bit_width(largest)), kBits);
  const auto& result = sorted[static_cast<std::size_t>(passes - 1) % 2];
  if (stream.is_measuring()) return result;
  const int* from = keys.as<int>();
  const int* order = nullptr;
  const Launch tile_a_block{static_cast<unsigned>(tiles), kThreads};
  for (int pass = 0; pass < passes; ++pass) {
    const auto& to = sorted[static_cast<std::size_t>(pass) % 2];
    launch(stream, tile_a_block, count_digits_kernel, counts.as<int>(), from, static_cast<int>(N),
           pass * kBits);
    launch(stream, tile_a_block, place_keys_kernel, to.keys.as<int>(), to.order.as<int>(),
           counts.as<int>(), from, order, static_cast<int>(N), pass * kBits);
    from = to.keys.as<int>();
    order = to.order.as<int>();
  }
  return result;
}

}  // namespace lockstep
