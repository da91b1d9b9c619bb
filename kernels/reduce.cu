// A block reduces one chunk of x, and a single block the chunks' results, in order. A thread adds
// 64 squares in fp32; what lies above is fp64.
#include "core/integer.h"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"
#include "kernels/reduce.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 64 * kThreads;  // elements
constexpr int kPacks = 8;              // loaded together

struct SumOfSquares {
  using Total = double;
  static __device__ float add(float sum, float x) { return sum + x * x; }
  static __device__ double combine(double a, double b) { return a + b; }
};
struct AbsMax {
  using Total = float;
  static __device__ float add(float largest, float x) { return fmaxf(largest, fabsf(x)); }
  static __device__ float combine(float a, float b) { return b > a ? b : a; }
};

// partial[block] = the result of chunk `block`.
template <class Operation, class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    reduce_chunks_kernel(float* partial, const T* x, std::int64_t n) {
  __shared__ typename Operation::Total shared[32];
  const auto begin = static_cast<std::int64_t>(blockIdx.x) * kChunk;
  const int size = static_cast<int>(std::min<std::int64_t>(kChunk, n - begin));
  float result = 0.0f;
  constexpr int kStride = kThreads * kWidth;
  for (int i = static_cast<int>(threadIdx.x) * kWidth; i < size; i += kPacks * kStride)
    with_packs<kPacks, kWidth, kStride>(x + begin, i, size, [&](const Pack<T, kWidth>& pack, int) {
#pragma unroll
      for (const T v : pack.v)
        result = Operation::add(result, to_float(v));
    });
  const typename Operation::Total total =
      block_reduce(static_cast<typename Operation::Total>(result), shared, Operation::combine);
  if (threadIdx.x == 0) partial[blockIdx.x] = static_cast<float>(total);
}

// out = out combined with all of partial.
template <class Operation>
__global__ void __launch_bounds__(kThreads)
    reduce_partial_kernel(float* out, const float* partial, int chunks) {
  __shared__ typename Operation::Total shared[32];
  typename Operation::Total result = 0;
  for (int chunk = static_cast<int>(threadIdx.x); chunk < chunks; chunk += kThreads)
    result = Operation::combine(result, static_cast<typename Operation::Total>(partial[chunk]));
  result = block_reduce(result, shared, Operation::combine);
  if (threadIdx.x == 0) *out = static_cast<float>(Operation::combine(*out, result));
}

template <class Operation>
void reduce(Stream& stream, Arena& scratch, const char* name, Tensor out, ConstTensor x) {
  const auto n = x.elements(), chunks = divide_up(n, kChunk);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate(name, DType::fp32, {chunks});
  if (stream.is_measuring()) return;
  with_float(x.dtype, [&]<class T>(T) {
    with_width<T>(n, {x.data}, [&](auto width) {
      launch(stream, {static_cast<unsigned>(chunks), kThreads},
             reduce_chunks_kernel<Operation, T, width>, partial.as<float>(), x.as<T>(), n);
    });
  });
  launch(stream, {1, kThreads}, reduce_partial_kernel<Operation>, out.as<float>(),
         partial.as<float>(), static_cast<int>(chunks));
}

}  // namespace

void sum_of_squares(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  reduce<SumOfSquares>(stream, scratch, "sum_of_squares", out, x);
}

void absmax(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  reduce<AbsMax>(stream, scratch, "absmax", out, x);
}

}  // namespace lockstep::cuda
