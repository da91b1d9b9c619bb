// This file rotates heads by RoPE's angles. It is included only after cpu_begin.h.
#pragma once

#include <cstdint>

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

// Rotation rotates heads of token n by its row of the table; sign -1 rotates by the opposite
// angles.
class Rotation {
 public:
  const std::int64_t half;  // K / 2

  Rotation(ConstTensor table, ConstTensor positions, std::int64_t n, float sign)
      : half(table.shape[1] / 2),
        cosines_(table.as<float>() + positions.as<std::int32_t>()[n] * table.shape[1]),
        sign_(sign) {}

  // of() rotates (a, b), which are n elements each, from i and half + i on.
  struct Pair {
    Floats a, b;
  };
  Pair of(Floats a, Floats b, std::int64_t i, std::int64_t n) const {
    const Floats cosine = load(cosines_ + i, n), sine = sign_ * load(cosines_ + half + i, n);
    return {a * cosine - b * sine, b * cosine + a * sine};
  }

 private:
  const float* cosines_;  // followed by the sines
  float sign_;
};

}  // namespace
}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE
