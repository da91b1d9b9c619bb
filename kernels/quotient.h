// Quotient computes x / scale for many x and one scale, without a division for each.
#pragma once

#include <cmath>

#include "core/dtype.h"

namespace lockstep {

// Quotient multiplies x by the reciprocal and corrects the result by the remainder. Converted to
// fp8, the result has the bits of to_fp8(x / scale), for every x and every scale of fp8_scale.
// Source: Markstein 1990, IBM Journal of Research and Development 34(1).
class Quotient {
 public:
  // With a tiny scale, the remainder could be denormal, so x and scale are multiplied by the same
  // factor. An x that becomes infinite by this is larger than any fp8 anyway.
  LOCKSTEP_HOST_DEVICE explicit Quotient(float scale)
      : factor_(scale < 0x1p-60f ? 0x1p64f : 1.0f),
        scale_(scale * factor_),
        reciprocal_(1.0f / scale_) {}

  LOCKSTEP_HOST_DEVICE float of(float x) const {
    x *= factor_;
    const float q = x * reciprocal_;
    const float corrected = std::fma(std::fma(-q, scale_, x), reciprocal_, q);
    // The remainder of infinities is NaN, and -0 with a remainder of 0 would lose its sign.
    return std::fabs(corrected) < INFINITY ? std::copysign(corrected, q) : q;
  }

 private:
  float factor_, scale_, reciprocal_;
};

}  // namespace lockstep
