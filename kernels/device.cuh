// This file defines what CUDA kernels share: packs of elements, and reductions over the threads of
// a warp or a block.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include <cuda_runtime.h>
#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

#include "core/dtype.h"
#include "core/integer.h"
#include "core/tensor.h"

namespace lockstep {

inline constexpr unsigned kAllLanes = ~0u;

// Rounds to nearest, in one instruction. It equals to_bf16, except that a NaN may become another
// NaN.
template <class T>
__device__ inline T from_float(float x) {
  if constexpr (sizeof(T) == 4)
    return x;
  else
#ifdef __CUDACC__
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#else
    return to_bf16(x);
#endif
}

// Computes e^x as exactly as results of type T can represent it.
template <class T>
__device__ inline float exponential(float x) {
  if constexpr (sizeof(T) == 2)
    return __expf(x);
  else
    return expf(x);
}

// Pack is N neighbouring elements that are loaded and stored together.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

// Elements of T in the widest pack, which has 16 bytes.
template <class T>
constexpr int kWidest = 16 / static_cast<int>(sizeof(T));

// load and store move N elements, in packs of at most 16 bytes.
template <class T, int N>
__device__ inline void load(float (&to)[N], const T* from) {
  constexpr int kWidth = std::min(N, kWidest<T>);
#pragma unroll
  for (int first = 0; first < N; first += kWidth) {
    const auto pack = *reinterpret_cast<const Pack<T, kWidth>*>(from + first);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      to[first + i] = to_float(pack.v[i]);
  }
}

template <class T, int N>
__device__ inline void store(T* to, const float (&from)[N]) {
  constexpr int kWidth = std::min(N, kWidest<T>);
#pragma unroll
  for (int first = 0; first < N; first += kWidth) {
    Pack<T, kWidth> pack;
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      pack.v[i] = from_float<T>(from[first + i]);
    *reinterpret_cast<Pack<T, kWidth>*>(to + first) = pack;
  }
}

// Calls body(pack, i) for the packs at x + i, i = first, first + kStride, ..., that begin below
// end, kCount at most. The first one does. All are loaded before one is used, so that many bytes
// are in flight. If there are fewer than kCount, the first one is loaded again.
template <int kCount, int kWidth, int kStride, class T, class Body>
__device__ inline void with_packs(const T* x, int first, int end, Body&& body) {
  Pack<T, kWidth> packs[kCount];
#pragma unroll
  for (int p = 0; p < kCount; ++p) {
    const int i = first + p * kStride;
    packs[p] = *reinterpret_cast<const Pack<T, kWidth>*>(x + (i < end ? i : first));
  }
#pragma unroll
  for (int p = 0; p < kCount; ++p)
    if (first + p * kStride < end) body(packs[p], first + p * kStride);
}

// Computes v = round(v + x) to T, the value of a sum that is stored as T.
template <class T, int N>
__device__ inline void add_rounded(float (&v)[N], const T* x) {
  float added[N];
  load(added, x);
#pragma unroll
  for (int i = 0; i < N; ++i)
    v[i] = to_float(from_float<T>(v[i] + added[i]));
}

// Returns the dynamic shared memory of the block.
template <class T>
__device__ inline T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(1024) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
#else
  return reinterpret_cast<T*>(simt::dynamic_shared());
#endif
}

// Combines the v of all lanes with a commutative f. Each lane gets the same bits.
template <class V, class F>
__device__ inline V warp_reduce(V v, F&& f) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    v = f(v, __shfl_xor_sync(kAllLanes, v, offset));
  return v;
}

__device__ inline float warp_sum(float v) {
  return warp_reduce(v, [](float a, float b) { return a + b; });
}

// Returns the sum of v over each `lanes` neighbours of a warp. `lanes` is a power of two.
__device__ inline float lanes_sum(float v, unsigned lanes) {
  for (unsigned offset = lanes / 2; offset > 0; offset /= 2)
    v += __shfl_xor_sync(kAllLanes, v, static_cast<int>(offset));
  return v;
}

__device__ inline float warp_max(float v) {
  return warp_reduce(v, [](float a, float b) { return fmaxf(a, b); });
}

// Does the same as warp_reduce over a block of whole warps along x. `shared` may be reused
// afterwards.
template <class V, class F>
__device__ inline V block_reduce(V v, V (&shared)[32], F&& f) {
  v = warp_reduce(v, f);
  const int warps = static_cast<int>(blockDim.x) / 32;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  v = shared[0];
  for (int warp = 1; warp < warps; ++warp)
    v = f(v, shared[warp]);
  __syncthreads();
  return v;
}

// Sets *out = max(*out, v of all threads of a block of whole warps), for v >= 0. Values are
// compared as integers, because floats that are not negative have the same order. So the bits do
// not depend on the order of blocks.
__device__ inline void raise(float* out, float v) {
  __shared__ float shared[32];
  const int threads = static_cast<int>(blockDim.x * blockDim.y);
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  v = warp_max(v);
  if (thread % 32 == 0) shared[thread / 32] = v;
  __syncthreads();
  if (thread >= 32) return;
  v = warp_max(thread < threads / 32 ? shared[thread] : 0.0f);
  if (thread != 0) return;
#ifdef __CUDACC__
  if (__ldcg(out) >= v) return;  // usually true: blocks need not queue for the atomic
#endif
  atomicMax(reinterpret_cast<unsigned*>(out), __float_as_uint(v));
}

// Does the same for values that are stored as T. The maximum is rounded as its element was.
template <class T>
__device__ inline void raise_stored(float* out, float v) {
  raise(out, to_float(from_float<T>(v)));
}

template <int N>
__device__ inline float largest_of(float most, const float (&v)[N]) {
#pragma unroll
  for (const float x : v)
    most = fmaxf(most, fabsf(x));
  return most;
}

__device__ inline int warp_max(int v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    v = max(v, __shfl_xor_sync(kAllLanes, v, offset));
  return v;
}

__device__ inline int warp_min(int v) {
  return -warp_max(-v);
}

// Calls f with the width of packs as an integral constant: kWidest if rows of D elements at these
// addresses allow it, else 1.
template <class T, class F>
void with_width(std::int64_t D, std::initializer_list<const void*> addresses, F&& f) {
  bool wide = D % kWidest<T> == 0;
  for (const void* a : addresses)
    wide = wide && reinterpret_cast<std::uintptr_t>(a) % 16 == 0;
  if (wide)
    f(std::integral_constant<int, kWidest<T>>{});
  else
    f(std::integral_constant<int, 1>{});
}

}  // namespace lockstep
