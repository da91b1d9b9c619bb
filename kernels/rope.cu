// A block rotates the query and key heads of one token. A thread rotates a pack of first halves
// with the pack of second halves. The token's cosines and sines come from cache for all heads
// except one. The values are read only if absmax is requested.
#include "kernels/device.cuh"
#include "kernels/elementwise.h"
#include "kernels/launch.cuh"
#include "kernels/rope.h"
#include "kernels/rotation.cuh"

namespace lockstep::cuda {
namespace {

__global__ void rope_table_kernel(float* table, int K, float theta,
                                  std::optional<RopeScaling> scaling) {
  const int p = static_cast<int>(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < K / 2; i += static_cast<int>(blockDim.x)) {
    const float angle = static_cast<float>(p) * inverse_frequency(i, K, theta, scaling);
    float* row = table + static_cast<std::int64_t>(p) * K;
    row[i] = static_cast<float>(cos(static_cast<double>(angle)));
    row[K / 2 + i] = static_cast<float>(sin(static_cast<double>(angle)));
  }
}

// sign -1 rotates by the opposite angles. kMost raises absmax; without it the kernel needs fewer
// registers.
template <class T, int kWidth, bool kMost>
__global__ void rope_kernel(T* qkv, const float* table, const std::int32_t* positions, int heads,
                            int all_heads, int K, float sign, float* absmax) {
  const auto n = static_cast<std::int64_t>(blockIdx.x);
  const float* row = table + static_cast<std::int64_t>(positions[n]) * K;
  const int half = K / 2, packs = half / kWidth;
  float most = 0.0f;
  for (int item = static_cast<int>(threadIdx.x); item < heads * packs;
       item += static_cast<int>(blockDim.x)) {
    const int head = item / packs, i = item % packs * kWidth;
    T* first = qkv + (n * all_heads + head) * K + i;
    float a[kWidth], b[kWidth];
    load(a, first);
    load(b, first + half);
    rotate(a, b, row + i, half, sign);
    store(first, a);
    store(first + half, b);
    if constexpr (kMost) most = largest_of(largest_of(most, a), b);
  }
  if constexpr (!kMost) return;
  const T* values = qkv + (n * all_heads + heads) * K;
  for (int i = static_cast<int>(threadIdx.x) * kWidth; i < (all_heads - heads) * K;
       i += static_cast<int>(blockDim.x) * kWidth) {
    float value[kWidth];
    load(value, values + i);
    most = largest_of(most, value);
  }
  raise_stored<T>(absmax, most);
}

void rotate(Stream& stream, Tensor qkv, ConstTensor table, ConstTensor positions, int heads,
            float sign, Tensor absmax) {
  const auto N = qkv.shape[0], K = qkv.shape[2];
  with_float(qkv.dtype, [&]<class T>(T) {
    with_width<T>(K / 2, {qkv.data, table.data}, [&](auto width) {
      const auto items = heads * (K / 2 / width);
      const auto threads = std::min<std::int64_t>(round_up(items, 32), 256);
      launch(stream, {static_cast<unsigned>(N), static_cast<unsigned>(threads)},
             absmax ? rope_kernel<T, width, true> : rope_kernel<T, width, false>, qkv.as<T>(),
             table.as<float>(), positions.as<std::int32_t>(), heads, static_cast<int>(qkv.shape[1]),
             static_cast<int>(K), sign, absmax ? absmax.as<float>() : nullptr);
    });
  });
}

}  // namespace

void rope_table(Stream& stream, Tensor table, float theta,
                const std::optional<RopeScaling>& scaling) {
  const auto P = table.shape[0], K = table.shape[1];
  launch(stream, {static_cast<unsigned>(P), 64}, rope_table_kernel, table.as<float>(),
         static_cast<int>(K), theta, scaling);
}

void rope_forward(Stream& stream, Tensor qkv, ConstTensor table, ConstTensor positions, int heads,
                  int kv_heads) {
  rotate(stream, qkv, table, positions, heads + kv_heads, 1.0f, {});
}

void rope_backward(Stream& stream, Tensor dqkv, ConstTensor table, ConstTensor positions, int heads,
                   int kv_heads, Tensor absmax) {
  if (absmax) cuda::fill(stream, absmax, 0.0f);
  rotate(stream, dqkv, table, positions, heads + kv_heads, -1.0f, absmax);
}

}  // namespace lockstep::cuda
