// A block reduces one chunk of one tensor, and a single block the chunks' results, in order. A
// thread adds 64 squares in fp32; what lies above is fp64. A launch is told up to 128 tensors, as a
// parameter of the kernel: a block finds its own there.
#include "core/integer.h"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"
#include "kernels/reduce.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 64 * kThreads;  // elements
constexpr int kPacks = 8;              // loaded together
constexpr int kTensors = 128;          // of a launch: its parameters may have 4 KiB

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

template <class T>
struct Tensors {
  const T* data[kTensors];
  std::int64_t elements[kTensors];
  int first_chunk[kTensors];
  int count = 0, chunks = 0;
};

// partial[block] = the result of chunk `block`.
template <class Operation, class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    reduce_chunks_kernel(float* partial, const __grid_constant__ Tensors<T> tensors) {
  __shared__ typename Operation::Total shared[32];
  int t = 0;  // the last tensor that begins at this chunk or before
  for (int behind = tensors.count; behind - t > 1;) {
    const int middle = (t + behind) / 2;
    (tensors.first_chunk[middle] <= static_cast<int>(blockIdx.x) ? t : behind) = middle;
  }
  const T* x = tensors.data[t];
  const auto begin = (static_cast<std::int64_t>(blockIdx.x) - tensors.first_chunk[t]) * kChunk;
  const int size = static_cast<int>(std::min<std::int64_t>(kChunk, tensors.elements[t] - begin));
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

std::int64_t chunks_of(ConstTensor x) {
  return divide_up(x.elements(), kChunk);
}

template <class Operation, class T>
void reduce_chunks(Stream& stream, float* partial, std::span<const ConstTensor> tensors) {
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
      launch(stream, shape, reduce_chunks_kernel<Operation, T, kWidest<T>>, partial, now);
    else
      launch(stream, shape, reduce_chunks_kernel<Operation, T, 1>, partial, now);
    partial += now.chunks;
    tensors = tensors.subspan(static_cast<std::size_t>(now.count));
  }
}

template <class Operation>
void reduce(Stream& stream, Arena& scratch, const char* name, Tensor out,
            std::span<const ConstTensor> tensors) {
  std::int64_t chunks = 0;
  for (const ConstTensor& x : tensors)
    chunks += chunks_of(x);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate(name, DType::fp32, {chunks});
  if (stream.is_measuring()) return;
  with_float(tensors.front().dtype, [&]<class T>(T) {
    reduce_chunks<Operation, T>(stream, partial.as<float>(), tensors);
  });
  launch(stream, {1, kThreads}, reduce_partial_kernel<Operation>, out.as<float>(),
         partial.as<float>(), static_cast<int>(chunks));
}

}  // namespace

void sum_of_squares(Stream& stream, Arena& scratch, Tensor out,
                    std::span<const ConstTensor> tensors) {
  reduce<SumOfSquares>(stream, scratch, "sum_of_squares", out, tensors);
}

void absmax(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  reduce<AbsMax>(stream, scratch, "absmax", out, {&x, 1});
}

}  // namespace lockstep::cuda
