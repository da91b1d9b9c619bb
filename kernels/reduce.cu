// For the sum of squares, a block reduces one chunk of one tensor. A single block then adds the
// chunks' results, in order. A thread adds 64 squares in fp32; sums above this are fp64. A launch
// takes up to 128 tensors as a parameter of the kernel, in which a block finds its own. For a
// maximum the order does not matter.
#include "core/integer.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "kernels/rows.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 64 * kThreads;  // elements
constexpr int kPacks = 8;              // loaded together
constexpr int kSumThreads = 1024;      // of the block that adds the chunks' results
constexpr int kTensors = 128;          // per launch: kernel parameters are limited to 4 KiB

// Applies f(result, x) to this thread's elements of the chunk of x that begins at `begin`.
template <class T, int kWidth, class F>
__device__ inline float reduce_chunk(const T* x, std::int64_t begin, std::int64_t n, F&& f) {
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

template <class T>
struct Tensors {
  const T* data[kTensors];
  std::int64_t elements[kTensors];
  int first_chunk[kTensors];
  int count = 0, chunks = 0;
};

__device__ inline double add(double a, double b) {
  return a + b;
}

// Computes partial[block] = the sum of squares of chunk `block`.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    sum_of_squares_kernel(float* partial, const __grid_constant__ Tensors<T> tensors) {
  __shared__ double shared[32];
  int t = 0;  // the last tensor that begins at this chunk or before
  for (int behind = tensors.count; behind - t > 1;) {
    const int middle = (t + behind) / 2;
    (tensors.first_chunk[middle] <= static_cast<int>(blockIdx.x) ? t : behind) = middle;
  }
  const auto begin = (static_cast<std::int64_t>(blockIdx.x) - tensors.first_chunk[t]) * kChunk;
  const float sum = reduce_chunk<T, kWidth>(tensors.data[t], begin, tensors.elements[t],
                                            [](float before, float v) { return before + v * v; });
  const double total = block_reduce(static_cast<double>(sum), shared, add);
  if (threadIdx.x == 0) partial[blockIdx.x] = static_cast<float>(total);
}

// Adds the sum of partial to out.
__global__ void __launch_bounds__(kSumThreads)
    sum_partial_kernel(float* out, const float* partial, int chunks) {
  __shared__ double shared[32];
  double sum = 0;
#pragma unroll 8
  for (int chunk = static_cast<int>(threadIdx.x); chunk < chunks; chunk += kSumThreads)
    sum += static_cast<double>(partial[chunk]);
  sum = block_reduce(sum, shared, add);
  if (threadIdx.x == 0) *out = static_cast<float>(static_cast<double>(*out) + sum);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) absmax_kernel(float* out, const T* x, std::int64_t n) {
  const auto begin = static_cast<std::int64_t>(blockIdx.x) * kChunk;
  raise(out, reduce_chunk<T, kWidth>(x, begin, n,
                                     [](float most, float v) { return fmaxf(most, fabsf(v)); }));
}

std::int64_t chunks_of(ConstTensor x) {
  return divide_up(x.elements(), kChunk);
}

template <class T>
void sum_chunks(Stream& stream, float* partial, std::span<const ConstTensor> tensors) {
  while (!tensors.empty()) {
    Tensors<T> now{};
    bool wide = true;
    for (const ConstTensor& x : tensors.first(std::min<std::size_t>(tensors.size(), kTensors))) {
      now.data[now.count] = x.as<T>();
      now.elements[now.count] = x.elements();
      now.first_chunk[now.count++] = now.chunks;
      now.chunks += static_cast<int>(chunks_of(x));
      with_width<T>(x.elements(), {x.data}, [&](auto width) { wide = wide && width > 1; });
    }
    const Launch shape{static_cast<unsigned>(now.chunks), kThreads};
    if (wide)
      launch(stream, shape, sum_of_squares_kernel<T, kWidest<T>>, partial, now);
    else
      launch(stream, shape, sum_of_squares_kernel<T, 1>, partial, now);
    partial += now.chunks;
    tensors = tensors.subspan(static_cast<std::size_t>(now.count));
  }
}

}  // namespace

void sum_of_squares(Stream& stream, Arena& scratch, Tensor out,
                    std::span<const ConstTensor> tensors) {
  std::int64_t chunks = 0;
  for (const ConstTensor& x : tensors)
    chunks += chunks_of(x);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("sum_of_squares", DType::fp32, {chunks});
  if (stream.is_measuring()) return;
  with_float(tensors.front().dtype,
             [&]<class T>(T) { sum_chunks<T>(stream, partial.as<float>(), tensors); });
  launch(stream, {1, kSumThreads}, sum_partial_kernel, out.as<float>(), partial.as<float>(),
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
