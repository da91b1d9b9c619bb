#pragma once

#include "kernels/device.cuh"

namespace lockstep {

// Turns the elements a of a head's first half against those of its second, b; `cosines` is where a
// stands in the row of the table, and `half` = K / 2 behind it stand the sines. sign -1 turns by
// the opposite angles.
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
