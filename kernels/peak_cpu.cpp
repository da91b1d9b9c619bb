#include <algorithm>
#include <chrono>
#include <cstdint>

#include "kernels/peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu_begin.h"  // after every other include

#include "kernels/matmul_tile_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 20;
constexpr double kRoundSeconds = 2.5e-3;
constexpr int kChains = kMr == 8 ? 28 : 12;  // in flight at once; 4 registers are left

// Runs `steps` times kChains vector multiply-adds, each chain dependent in itself. Returns a sum of
// them, so that the compiler keeps them.
template <class T>
__attribute__((noinline)) float multiply_adds(std::int64_t steps, float factor) {
  Vec chains[kChains];
  for (int i = 0; i < kChains; ++i)
    chains[i] = Vec{} + static_cast<float>(i);
  const Vec x = Vec{} + factor, one = Vec{} + 1.0f;
  for (std::int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 28
    for (int i = 0; i < kChains; ++i) {
      if constexpr (kPerWord<T> == 2)
        chains[i] = multiply_add<T>(chains[i], (VecWords)x, (VecWords)one);
      else  // through the factor: a multiplication equal in each step would be hoisted
        chains[i] = multiply_add<T>(one, (VecWords)chains[i], (VecWords)x);
    }
  }
  Vec sum{};
  for (int i = 0; i < kChains; ++i)
    sum += chains[i];
  return sum[0];
}

template <class T>
double round_flops(Stream& stream, std::int64_t steps) {
  const auto begin = Clock::now();
  stream.parallel_for(stream.threads(), [&](std::int64_t, int) {
    [[maybe_unused]] volatile float sink = multiply_adds<T>(steps, 0.5f);  // else it is omitted
  });
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  return 2.0 * kWide * kPerWord<T> * kChains * static_cast<double>(steps) * stream.threads() /
         seconds.count();
}

}  // namespace

double measure_peak_flops(Stream& stream, DType dtype) {
  double best = 0;
  with_float(dtype, [&]<class T>(T) {
    constexpr double kStepFlops = 2.0 * kWide * kPerWord<T> * kChains;
    round_flops<T>(stream, 1000);  // wakes the threads
    const double rate = round_flops<T>(stream, 10000) / stream.threads();
    const auto steps = static_cast<std::int64_t>(kRoundSeconds * rate / kStepFlops) + 1;
    for (int round = 0; round < kRounds; ++round)
      best = std::max(best, round_flops<T>(stream, steps));
  });
  return best;
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
