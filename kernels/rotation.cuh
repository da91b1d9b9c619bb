#pragma once

#include "kernels/device.cuh"

namespace lockstep {

// Rotates the elements a of a head's first half with those of its second half, b. `cosines` points
// to the cosines of a in the row of the table. Their sines follow `half` = K / 2 elements later.
// sign -1 rotates by the opposite angles.
template <int kWidth>
__device__ inline void rotate(float (&a)[kWidth], float (&b)[kWidth], const float* cosines,
                              int half, float sign) {
  float cosine[kWidth], sine[kWidth];
  load(cosine, cosines);
  load(sine, cosines + half);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float turned = a[i] * cosine[i] - sign * b[i] * sine[i];
    b[i] = b[i] * cosine[i] + sign * a[i] * sine[i];
    a[i] = turned;
  }
}

}  // namespace lockstep
