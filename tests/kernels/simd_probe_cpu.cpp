#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/integer.h"
#include "core/philox.h"
#include "tests/kernels/simd_probe.h"

#include "kernels/cpu_begin.h"  // after every other include

#include "kernels/attention_tile_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

// The functions of attention take vectors of one register.
template <class F>
Floats by_registers(Floats x, F&& f) {
  float v[kLanes];
  store(v, x);
  for (std::int64_t i = 0; i < kLanes; i += kWidth)
    write(v + i, f(read<Vector>(v + i)));
  return load(v);
}

Floats value(SimdFunction f, Floats x) {
  switch (f) {
    case SimdFunction::exp: return exp(x);
    case SimdFunction::exp2: return by_registers(x, [](Vector v) { return exp2(v); });
    case SimdFunction::gelu: return gelu(x);
    case SimdFunction::gelu_slope: return gelu_slope(x);
    case SimdFunction::log: return log(x);
    case SimdFunction::log2: return by_registers(x, [](Vector v) { return log2(v); });
    case SimdFunction::sigmoid: return sigmoid(x);
    case SimdFunction::sine_of_turns: return sincos_turns(x).sin;
    case SimdFunction::cosine_of_turns: return sincos_turns(x).cos;
    case SimdFunction::square_root: return sqrt(x);
  }
  return x;
}

}  // namespace

void simd_apply(SimdFunction f, float* y, const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes)
    store(y + i, value(f, load(x + i)));
}

void simd_round(BFloat16* y, const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes)
    narrow(&y[i].bits, round_to_bf16(load(x + i)));
}

void simd_round_stochastically(BFloat16* y, const float* x, const std::uint32_t* bits,
                               std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes)
    narrow(&y[i].bits, round_stochastically(load(x + i), load_lanes<Words>(bits + i)));
}

void simd_copy(const SimdCopy& args) {
  const auto put = [&](Floats v) {
    if (args.to_bf16)
      store(static_cast<BFloat16*>(args.to), v, args.size);
    else
      store(static_cast<float*>(args.to), v, args.size);
  };
  if (args.from_bf16)
    put(load(static_cast<const BFloat16*>(args.from), args.size));
  else
    put(load(static_cast<const float*>(args.from), args.size));
}

SimdSums simd_sums(const float* x, std::int64_t n) {
  const auto f = [&](std::int64_t i, std::int64_t lanes) { return load(x + i, lanes); };
  return {total(load(x)), largest(load(x)), total(sum_vectors(n, f))};
}

void simd_draws(Philox4* eight, std::uint64_t key, std::uint64_t counter_high,
                std::uint64_t first) {
  store_draws(eight, philox_lanes(key, counter_high, counters_from(first)));
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
