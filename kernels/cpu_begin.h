// From cpu_begin.h to cpu_end.h, code is compiled for one CpuLevel, in its own namespace. CMake
// chooses the level with -DLOCKSTEP_CPU_LEVEL=0..3. A pragma, not a compiler flag, sets the
// instructions, so that inline functions of headers included before stay baseline code. Otherwise
// the linker could use an AVX-512 copy of std::vector on a machine without AVX-512. Include
// everything else first. There is no #pragma once, because the two files are a pair of brackets.
#ifndef LOCKSTEP_CPU_LEVEL
#define LOCKSTEP_CPU_LEVEL 0  // editors and linters
#endif

#if LOCKSTEP_CPU_LEVEL == 0
#define LOCKSTEP_CPU_NAMESPACE cpu_baseline
#elif LOCKSTEP_CPU_LEVEL == 1
#define LOCKSTEP_CPU_NAMESPACE cpu_avx2
#elif LOCKSTEP_CPU_LEVEL == 2
#define LOCKSTEP_CPU_NAMESPACE cpu_avx512
#else
#define LOCKSTEP_CPU_NAMESPACE cpu_avx512_bf16
#endif

#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#pragma GCC push_options
#if LOCKSTEP_CPU_LEVEL == 1
#pragma GCC target("avx2,fma,f16c,bmi,bmi2")
#elif LOCKSTEP_CPU_LEVEL == 2
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl")
#elif LOCKSTEP_CPU_LEVEL == 3
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#endif

// Each header needs the one before it.
// NOLINTBEGIN(misc-include-cleaner): inside the brackets on purpose
// clang-format off
#include "kernels/simd_lanes.h"
#include "kernels/simd_narrow.h"
#include "kernels/simd.h"
#include "kernels/simd_random.h"
// clang-format on
// NOLINTEND(misc-include-cleaner)
