// This file dispatches an operator to its kernel. Each operator has four files:
//
//   rmsnorm.h        the contract, and one LOCKSTEP_KERNELS(...) with the kernels' declarations
//   rmsnorm.cpp      checks of the arguments, then LOCKSTEP_DISPATCH
//   rmsnorm_cpu.cpp  the CPU kernel; CMake compiles it once per CpuLevel, in the namespace
//                    LOCKSTEP_CPU_NAMESPACE, between cpu_begin.h and cpu_end.h
//   rmsnorm.cu       the CUDA kernel, in the namespace cuda
#pragma once

#include "core/cpu.h"
#include "core/stream.h"

#ifndef LOCKSTEP_WITH_CUDA  // 1 for operators in a build with CUDA
#define LOCKSTEP_WITH_CUDA 0
#endif

namespace lockstep {

// Calls f with a value of the element type, so that a kernel template is chosen by dtype:
// with_float(x.dtype, [&]<class T>(T) { kernel(x.as<T>()); });
template <class F>
void with_float(DType dtype, F&& f) {
  if (dtype == DType::bf16) {
    f(BFloat16{});
  } else {
    f(0.0f);
  }
}

}  // namespace lockstep

#if defined(__x86_64__)
#define LOCKSTEP_KERNELS(...) \
  namespace cuda {            \
  __VA_ARGS__                 \
  }                           \
  namespace cpu_baseline {    \
  __VA_ARGS__                 \
  }                           \
  namespace cpu_avx2 {        \
  __VA_ARGS__                 \
  }                           \
  namespace cpu_avx512 {      \
  __VA_ARGS__                 \
  }                           \
  namespace cpu_avx512_bf16 { \
  __VA_ARGS__                 \
  }
#define LOCKSTEP_DISPATCH_CPU(...)                                   \
  switch (::lockstep::cpu_level()) {                                 \
    case CpuLevel::avx512_bf16: return cpu_avx512_bf16::__VA_ARGS__; \
    case CpuLevel::avx512: return cpu_avx512::__VA_ARGS__;           \
    case CpuLevel::avx2: return cpu_avx2::__VA_ARGS__;               \
    case CpuLevel::baseline: return cpu_baseline::__VA_ARGS__;       \
  }
#else
#define LOCKSTEP_KERNELS(...) \
  namespace cuda {            \
  __VA_ARGS__                 \
  }                           \
  namespace cpu_baseline {    \
  __VA_ARGS__                 \
  }
#define LOCKSTEP_DISPATCH_CPU(...) return cpu_baseline::__VA_ARGS__
#endif

#if LOCKSTEP_WITH_CUDA
#define LOCKSTEP_DISPATCH_CUDA(...) return cuda::__VA_ARGS__
#else
#define LOCKSTEP_DISPATCH_CUDA(...) LOCKSTEP_FAIL("no CUDA kernel for ", #__VA_ARGS__)
#endif

// Runs the kernel for the stream's device and returns from the operator. On a measuring stream it
// returns at once.
//   LOCKSTEP_DISPATCH(stream, rmsnorm_forward(stream, args));
#define LOCKSTEP_DISPATCH(stream, ...)              \
  do {                                              \
    if ((stream).is_measuring()) return;            \
    LOCKSTEP_DISPATCH_SCRATCH(stream, __VA_ARGS__); \
  } while (0)

// Does the same for an operator that allocates scratch. Its kernel is called on a measuring stream
// too, so that the arena counts its allocations. It must return after them:
//   if (stream.is_measuring()) return;
//
// In a build without CUDA kernels, a measuring stream of a GPU counts the scratch of the CPU
// kernel.
#define LOCKSTEP_DISPATCH_SCRATCH(stream, ...)                                  \
  do {                                                                          \
    if ((stream).is_cuda() && (LOCKSTEP_WITH_CUDA || !(stream).is_measuring())) \
      LOCKSTEP_DISPATCH_CUDA(__VA_ARGS__);                                      \
    LOCKSTEP_DISPATCH_CPU(__VA_ARGS__);                                         \
  } while (0)
