// What kernels share: 16-byte packs of elements, and sums over the threads of a warp or of a row.
#pragma once

#include <initializer_list>
#include <type_traits>

#include <cuda_runtime.h>

#include "core/dtype.h"
#include "core/integer.h"
#include "core/tensor.h"

namespace lockstep {

inline constexpr unsigned kAllLanes = ~0u;

template <class T>
__device__ inline T from_float(float x) {
  if constexpr (sizeof(T) == 2)
    return to_bf16(x);
  else
    return x;
}

// N neighbours, loaded and stored as one.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

// The widest packs that rows of D elements fall into: 16 bytes, or one element.
template <class T>
constexpr int kWidest = 16 / static_cast<int>(sizeof(T));

template <class T, int N>
__device__ inline void load(float (&to)[N], const T* from) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i)
    to[i] = to_float(pack.v[i]);
}

template <class T, int N>
__device__ inline void store(T* to, const float (&from)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i)
    pack.v[i] = from_float<T>(from[i]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// The dynamic shared memory of the block.
template <class T>
__device__ inline T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(1024) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
#else
  return reinterpret_cast<T*>(simt::dynamic_shared());
#endif
}

__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    v += __shfl_xor_sync(kAllLanes, v, offset);
  return v;
}

__device__ inline float warp_max(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, offset));
  return v;
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

// Calls f with an integral constant of how wide packs are: kWidest where rows of D elements, at
// these addresses, allow it, else 1.
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
