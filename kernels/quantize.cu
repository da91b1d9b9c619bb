// One scale: element by element, four packs a thread. One scale a block of 128 x 128: a block of
// threads holds those elements in registers between their maximum and their conversion, so that
// memory is read once.
#include "kernels/quantize.h"

#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif

#include "core/fp8.h"
#include "core/integer.h"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"
#include "kernels/quotient.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 4;  // of a thread, loaded together

// to_fp8 of four numbers, two in one instruction: cuda_fp8.h has the same bits for every x.
template <class F>
__device__ inline std::uint32_t four_fp8(const float* x) {
#ifdef __CUDACC__
  constexpr auto kFormat = std::is_same_v<F, Fp8E4M3> ? __NV_E4M3 : __NV_E5M2;
  const std::uint32_t low = __nv_cvt_float2_to_fp8x2({x[0], x[1]}, __NV_SATFINITE, kFormat);
  const std::uint32_t high = __nv_cvt_float2_to_fp8x2({x[2], x[3]}, __NV_SATFINITE, kFormat);
  return low | high << 16;
#else
  std::uint32_t codes = 0;
  for (int i = 0; i < 4; ++i)
    codes |= std::uint32_t{to_fp8<F>(x[i]).bits} << (8 * i);
  return codes;
#endif
}

template <class F, int N>
__device__ inline void store_fp8(F* q, const float (&x)[N]) {
  if constexpr (N == 1) {
    *q = to_fp8<F>(x[0]);
  } else {
    Pack<std::uint32_t, N / 4> codes;
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      codes.v[i] = four_fp8<F>(x + 4 * i);
    *reinterpret_cast<Pack<std::uint32_t, N / 4>*>(q) = codes;
  }
}

template <class F, class T, int N>
__device__ inline void encode(F* q, const T (&x)[N], const Quotient& quotient) {
  float v[N];
#pragma unroll
  for (int i = 0; i < N; ++i)
    v[i] = quotient.of(to_float(x[i]));
  store_fp8(q, v);
}

template <class F, class T, int N>
__device__ inline void decode(T* y, const F (&q)[N], float scale) {
  float v[N];
#pragma unroll
  for (int i = 0; i < N; ++i)
    v[i] = fp8_to_float(q[i]) * scale;
  store(y, v);
}

// body(pack, i) for the packs of this thread at x + i.
template <int kWidth, class T, class Body>
__device__ inline void for_packs_of_thread(const T* x, std::int64_t n, Body&& body) {
  constexpr int kStride = kThreads * kWidth, kShare = kPacks * kStride;  // of a block
  const auto begin = static_cast<std::int64_t>(blockIdx.x) * kShare;
  const int size = n - begin < kShare ? static_cast<int>(n - begin) : kShare;
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  if (first >= size) return;
  with_packs<kPacks, kWidth, kStride>(
      x + begin, first, size, [&](const Pack<T, kWidth>& pack, int i) { body(pack, begin + i); });
}

template <class F, class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(F* q, float* scale, const T* x, const float* absmax, std::int64_t n) {
  const float s = fp8_scale<F>(*absmax);
  if (blockIdx.x == 0 && threadIdx.x == 0) *scale = s;
  const Quotient quotient(s);
  for_packs_of_thread<kWidth>(
      x, n, [&](const Pack<T, kWidth>& pack, std::int64_t i) { encode(q + i, pack.v, quotient); });
}

template <class F, class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(T* y, const F* q, const float* scale, std::int64_t n) {
  const float s = *scale;
  for_packs_of_thread<kWidth>(
      q, n, [&](const Pack<F, kWidth>& pack, std::int64_t i) { decode(y + i, pack.v, s); });
}

constexpr int kBlock = static_cast<int>(kQuantizeBlock);
constexpr int kBlockThreads = 512;

// Calls body(item, i) for the packs of this thread in block (blockIdx.y, blockIdx.x) of [R, C]: i
// is the first element of each.
template <int kWidth, class Body>
__device__ inline void for_packs_of_block(std::int64_t R, std::int64_t C, Body&& body) {
  constexpr int kRowPacks = kBlock / kWidth;
  const int thread = static_cast<int>(threadIdx.x);
  const auto row = static_cast<std::int64_t>(blockIdx.y) * kBlock + thread / kRowPacks;
  const auto column = static_cast<std::int64_t>(blockIdx.x) * kBlock + thread % kRowPacks * kWidth;
#pragma unroll
  for (int item = 0; item < kBlock * kRowPacks / kBlockThreads; ++item) {
    const auto r = row + item * (kBlockThreads / kRowPacks);
    if (r < R && column < C) body(item, r * C + column);
  }
}

template <class F, class T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    quantize_blocks_kernel(F* q, float* scales, const T* x, std::int64_t R, std::int64_t C) {
  __shared__ float shared[32];
  Pack<T, kWidth> packs[kBlock * kBlock / kWidth / kBlockThreads];
  for_packs_of_block<kWidth>(R, C, [&](int item, std::int64_t i) {
    packs[item] = *reinterpret_cast<const Pack<T, kWidth>*>(x + i);
  });
  float absmax = 0.0f;
  for_packs_of_block<kWidth>(R, C, [&](int item, std::int64_t) {
#pragma unroll
    for (const T v : packs[item].v)
      absmax = fmaxf(absmax, fabsf(to_float(v)));
  });
  absmax = block_reduce(absmax, shared, [](float a, float b) { return fmaxf(a, b); });
  const float scale = fp8_scale<F>(absmax);
  if (threadIdx.x == 0) scales[blockIdx.y * gridDim.x + blockIdx.x] = scale;
  const Quotient quotient(scale);
  for_packs_of_block<kWidth>(
      R, C, [&](int item, std::int64_t i) { encode(q + i, packs[item].v, quotient); });
}

template <class F, class T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    dequantize_blocks_kernel(T* y, const F* q, const float* scales, std::int64_t R,
                             std::int64_t C) {
  const float scale = scales[blockIdx.y * gridDim.x + blockIdx.x];
  for_packs_of_block<kWidth>(R, C, [&](int, std::int64_t i) {
    decode(y + i, reinterpret_cast<const Pack<F, kWidth>*>(q + i)->v, scale);
  });
}

// Calls f with values of both element types and an integral constant of how wide packs are, for
// rows of C elements.
template <class F>
void with_types(ConstTensor fp8, ConstTensor other, std::int64_t C, F&& f) {
  with_fp8(fp8.dtype, [&]<class Format>(Format format) {
    with_float(other.dtype, [&]<class T>(T t) {
      with_width<T>(C, {fp8.data, other.data}, [&](auto width) { f(format, t, width); });
    });
  });
}

// At least one block, which writes the scale.
Launch elementwise(std::int64_t n, int width) {
  const auto blocks = std::max<std::int64_t>(divide_up(n, kPacks * kThreads * width), 1);
  return {static_cast<unsigned>(blocks), kThreads};
}

Launch blockwise(const Shape& scales) {
  return {{static_cast<unsigned>(scales[1]), static_cast<unsigned>(scales[0])}, kBlockThreads};
}

}  // namespace

void quantize(Stream& stream, Tensor q, Tensor scale, ConstTensor x, ConstTensor absmax) {
  const auto n = x.elements();
  with_types(q, x, n, [&]<class F, class T>(F, T, auto width) {
    launch(stream, elementwise(n, width), quantize_kernel<F, T, width>, q.as<F>(),
           scale.as<float>(), x.as<T>(), absmax.as<float>(), n);
  });
}

void quantize_blocks(Stream& stream, Tensor q, Tensor scales, ConstTensor x) {
  with_types(q, x, x.shape[1], [&]<class F, class T>(F, T, auto width) {
    launch(stream, blockwise(scales.shape), quantize_blocks_kernel<F, T, width>, q.as<F>(),
           scales.as<float>(), x.as<T>(), x.shape[0], x.shape[1]);
  });
}

void dequantize(Stream& stream, Tensor y, ConstTensor q, ConstTensor scale) {
  const bool blocks = scale.shape.rank == 2;
  const auto n = q.elements();
  with_types(q, y, blocks ? q.shape[1] : n, [&]<class F, class T>(F, T, auto width) {
    if (blocks)
      launch(stream, blockwise(scale.shape), dequantize_blocks_kernel<F, T, width>, y.as<T>(),
             q.as<F>(), scale.as<float>(), q.shape[0], q.shape[1]);
    else
      launch(stream, elementwise(n, width), dequantize_kernel<F, T, width>, y.as<T>(), q.as<F>(),
             scale.as<float>(), n);
  });
}

}  // namespace lockstep::cuda
