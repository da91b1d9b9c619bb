// Replaces the header of CUDA when a .cu file is compiled for tests/simt. It has the keywords of
// CUDA C++ that the kernels use, and the part of the runtime that their launchers use.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "cuda_runtime_api.h"
#include "tests/simt/simt.h"

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__
#define __shared__ static thread_local __attribute__((aligned(256)))

// threadIdx.x and so on: objects without data that read the index of the running thread.
template <auto vector, auto component>
struct SimtComponent {
  operator unsigned() const { return simt::self().*vector.*component; }  // NOLINT: as in CUDA
};
template <auto vector, class Vector>
struct SimtBuiltin {
  SimtComponent<vector, &Vector::x> x{};
  SimtComponent<vector, &Vector::y> y{};
  SimtComponent<vector, &Vector::z> z{};
};
inline constexpr SimtBuiltin<&simt::Thread::thread, simt::Index> threadIdx;
inline constexpr SimtBuiltin<&simt::Thread::block, simt::Index> blockIdx;
inline constexpr SimtBuiltin<&simt::Thread::block_size, simt::Extent> blockDim;
inline constexpr SimtBuiltin<&simt::Thread::grid_size, simt::Extent> gridDim;

using std::max;
using std::min;

inline void __syncthreads() {
  simt::syncthreads();
}
inline int __syncthreads_count(int predicate) {
  return simt::syncthreads_count(predicate != 0);
}
inline void __syncwarp(unsigned mask = ~0u) {
  simt::syncwarp(mask);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const simt::Exchange all(mask, "__shfl_sync", &value, sizeof value);
  return all.as<T>(simt::lane() / width * width + (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const simt::Exchange all(mask, "__shfl_xor_sync", &value, sizeof value);
  const int source = simt::lane() ^ lane_mask;
  return all.as<T>(source / width <= simt::lane() / width ? source : simt::lane());
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const simt::Exchange all(mask, "__shfl_down_sync", &value, sizeof value);
  const int source = simt::lane() + static_cast<int>(delta);
  return all.as<T>(source / width == simt::lane() / width ? source : simt::lane());
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const simt::Exchange all(mask, "__shfl_up_sync", &value, sizeof value);
  const int source = simt::lane() - static_cast<int>(delta);
  return all.as<T>(source >= simt::lane() / width * width ? source : simt::lane());
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const simt::Exchange all(mask, "__ballot_sync", &predicate, sizeof predicate);
  unsigned votes = 0;
  for (int l = 0; l < 32; ++l)
    if ((mask >> l & 1) != 0 && all.as<int>(l) != 0) votes |= 1u << l;
  return votes;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  const simt::Exchange all(mask, "__match_any_sync", &value, sizeof value);
  unsigned same = 0;
  for (int l = 0; l < 32; ++l)
    if ((mask >> l & 1) != 0 && all.as<T>(l) == value) same |= 1u << l;
  return same;
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}

// atomic() checks these accesses, so g++ must not report them.
template <class T>
[[gnu::no_sanitize_thread]] T atomicAdd(T* address, std::type_identity_t<T> value) {
  simt::atomic(address, sizeof *address);
  const T old = *address;
  *address = old + value;
  return old;
}
[[gnu::no_sanitize_thread]] inline unsigned atomicMax(unsigned* address, unsigned value) {
  simt::atomic(address, sizeof *address);
  const unsigned old = *address;
  *address = old < value ? value : old;
  return old;
}

inline long long clock64() {
  return static_cast<long long>(simt::device_nanoseconds());
}
inline void __nanosleep(unsigned nanoseconds) {
  simt::pass_time(nanoseconds);
}

inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline int __popc(unsigned bits) {
  return std::popcount(bits);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
inline std::uint64_t __umul64hi(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{a} * b >> 64);
}
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}

// Kernel and arguments are copied, as on a GPU.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  simt::submit(config->stream,
               [=, launched = *config,
                copies = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)] {
                 simt::launch(launched.gridDim, launched.blockDim, launched.dynamicSmemBytes,
                              [&] { std::apply(kernel, copies); });
               });
  return cudaSuccess;
}

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*)(Parameters...), cudaFuncAttribute, int) {
  return cudaSuccess;
}
