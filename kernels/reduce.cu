// Squares: a block reduces one chunk of x, and a single block the chunks' results, in order. A
// thread adds 64 squares in fp32; what lies above is fp64. Of a maximum the order does not matter.
#include "core/integer.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "kernels/rows.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 64 * kThreads;  // elements
constexpr int kPacks = 8;              // loaded together

// f(sum, x) over this thread's elements of the block's chunk.
template <class T, int kWidth, class F>
__device__ inline float reduce_chunk(const T* x, std::int64_t n, F&& f) {
  const auto begin = static_cast<std::int64_t>(blockIdx.x) * kChunk;
  const int size = static_cast<int>(std::min<std::int64_t>(kChunk, n - begin));
  float result = 0.0f;
  constexpr int kStride = kThreads * kWidth;
  for (int i = static_cast<int>(threadIdx.x) * kWidth; i < size; i += kPacks * kStride)
    with_packs<kPacks, kWidth, kStride>(x + begin, i, size, [&](const Pack<T, kWidth>& pack, int) {
#pragma unroll
      for (const T v : pack.v)
        result = f(result, to_float(v));
    });
  return result;
}

__device__ inline double add(double a, double b) {
  return a + b;
}

// partial[block] = the sum of squares of chunk `block`.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    sum_of_squares_kernel(float* partial, const T* x, std::int64_t n) {
  __shared__ double shared[32];
  const float sum =
      reduce_chunk<T, kWidth>(x, n, [](float before, float v) { return before + v * v; });
  const double total = block_reduce(static_cast<double>(sum), shared, add);
  if (threadIdx.x == 0) partial[blockIdx.x] = static_cast<float>(total);
}

// out += the sum of partial.
__global__ void __launch_bounds__(kThreads)
    sum_partial_kernel(float* out, const float* partial, int chunks) {
  __shared__ double shared[32];
  double sum = 0;
  for (int chunk = static_cast<int>(threadIdx.x); chunk < chunks; chunk += kThreads)
    sum += static_cast<double>(partial[chunk]);
  sum = block_reduce(sum, shared, add);
  if (threadIdx.x == 0) *out = static_cast<float>(static_cast<double>(*out) + sum);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) absmax_kernel(float* out, const T* x, std::int64_t n) {
  raise(out,
        reduce_chunk<T, kWidth>(x, n, [](float most, float v) { return fmaxf(most, fabsf(v)); }));
}

}  // namespace

void sum_of_squares(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  const auto n = x.elements(), chunks = divide_up(n, kChunk);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("sum_of_squares", DType::fp32, {chunks});
  if (stream.is_measuring()) return;
  with_float(x.dtype, [&]<class T>(T) {
    with_width<T>(n, {x.data}, [&](auto width) {
      launch(stream, {static_cast<unsigned>(chunks), kThreads}, sum_of_squares_kernel<T, width>,
             partial.as<float>(), x.as<T>(), n);
    });
  });
  launch(stream, {1, kThreads}, sum_partial_kernel, out.as<float>(), partial.as<float>(),
         static_cast<int>(chunks));
}

void absmax(Stream& stream, Tensor out, ConstTensor x) {
  const auto n = x.elements();
  cuda::fill(stream, out, 0.0f);
  with_float(x.dtype, [&]<class T>(T) {
    with_width<T>(n, {x.data}, [&](auto width) {
      launch(stream, {static_cast<unsigned>(divide_up(n, kChunk)), kThreads},
             absmax_kernel<T, width>, out.as<float>(), x.as<T>(), n);
    });
  });
}

void sum_rows(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  const Arena::Scope scope(scratch);
  const auto partial =
      scratch.allocate("sum_rows", DType::fp32, {gradient_blocks(x.shape[0]), x.shape[1]});
  if (stream.is_measuring()) return;
  sum_columns(stream, partial, x);
  add_block_sums(stream, out, partial);
}

}  // namespace lockstep::cuda
