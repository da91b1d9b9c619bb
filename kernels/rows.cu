#include "kernels/dispatch.h"
#include "kernels/rows.cuh"

namespace lockstep {
namespace {

constexpr int kWarps = 8;

template <class T, int kWidth>
__global__ void sum_columns_kernel(float* partial, const T* x, std::int64_t N, int D) {
  const int d = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kWidth;
  if (d >= D) return;
  float sum[kWidth] = {};
#pragma unroll 4
  for (std::int64_t n = blockIdx.x; n < N; n += gridDim.x) {
    float v[kWidth];
    load(v, x + n * D + d);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      sum[i] += v[i];
  }
  store(partial + static_cast<std::int64_t>(blockIdx.x) * D + d, sum);
}

// A block sums 32 columns. Its warps sum every eighth row each; then their sums are added in order.
__global__ void add_block_sums_kernel(float* out, const float* partial, int rows, int D) {
  __shared__ float sums[kWarps][32];
  const int d = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  const int warp = static_cast<int>(threadIdx.y);
  float sum = 0.0f;
  if (d < D)
#pragma unroll 8
    for (int r = warp; r < rows; r += kWarps)
      sum += partial[static_cast<std::int64_t>(r) * D + d];
  sums[warp][threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || d >= D) return;
  for (int w = 1; w < kWarps; ++w)
    sum += sums[w][threadIdx.x];
  out[d] += sum;
}

}  // namespace

void sum_columns(Stream& stream, Tensor partial, ConstTensor x) {
  constexpr int kThreads = 128;
  const auto N = x.shape[0], D = x.shape[1];
  with_float(x.dtype, [&]<class T>(T) {
    with_width<float>(D, {partial.data, x.data}, [&](auto width) {
      launch(stream,
             {{static_cast<unsigned>(partial.shape[0]),
               static_cast<unsigned>(divide_up(D, width * kThreads))},
              kThreads},
             sum_columns_kernel<T, width>, partial.as<float>(), x.as<T>(), N, static_cast<int>(D));
    });
  });
}

void add_block_sums(Stream& stream, Tensor out, ConstTensor partial) {
  const auto rows = partial.shape[0], D = partial.shape[1];
  launch(stream, {static_cast<unsigned>(divide_up(D, 32)), {32, kWarps}}, add_block_sums_kernel,
         out.as<float>(), partial.as<float>(), static_cast<int>(rows), static_cast<int>(D));
}

}  // namespace lockstep
