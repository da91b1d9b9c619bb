// Applies functions of kernels/simd.h, simd_random.h and attention_tile_cpu.h to arrays. They are
// compiled once per CpuLevel like an operator, so simd_test.cpp tests the level that it runs on.
#pragma once

#include "core/philox.h"
#include "kernels/dispatch.h"

namespace lockstep {

enum class SimdFunction : std::uint8_t {
  exp,
  exp2,
  gelu,
  gelu_slope,
  log,
  log2,
  sigmoid,
  sine_of_turns,
  cosine_of_turns,
  square_root,
};

// The widths of load and store: fp32 to fp32, and the two conversions.
struct SimdCopy {
  const void* from;
  void* to;
  bool from_bf16, to_bf16;
  std::int64_t size;  // fewer than 16: the versions for tails
};

struct SimdSums {
  float total, largest, sum_vectors;
};

LOCKSTEP_KERNELS(
    // y[i] = f(x[i]) for a multiple of 16 elements.
    void simd_apply(SimdFunction f, float* y, const float* x, std::int64_t n);
    void simd_round(BFloat16* y, const float* x, std::int64_t n);
    void simd_round_stochastically(BFloat16* y, const float* x, const std::uint32_t* bits,
                                   std::int64_t n);
    void simd_copy(const SimdCopy& args);
    SimdSums simd_sums(const float* x, std::int64_t n);  // total and largest: of the first 16
    void simd_draws(Philox4* eight, std::uint64_t key, std::uint64_t counter_high,
                    std::uint64_t first);)

}  // namespace lockstep
