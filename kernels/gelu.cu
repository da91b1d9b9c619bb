#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "kernels/packs.cuh"

namespace lockstep::cuda {
namespace {

constexpr float kSqrt2OverPi = 0.7978845608f, kCubic = 0.044715f;

// Computes tanh(u) = 1 - 2 / (1 + e^2u). Away from 0 it is exact to fp32's last bits. Near 0 its
// relative error does not matter, because it is added to 1.
template <class T>
__device__ inline float tanh_of(float u) {
  return 1.0f - 2.0f / (1.0f + exponential<T>(2.0f * u));
}

template <class T>
struct Forward {
  using Stored = T;
  T* y;
  const T* x;
  float* absmax;  // or nullptr
  template <int kWidth>
  __device__ float apply(std::int64_t at) const {
    float v[kWidth];
    load(v, x + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float u = kSqrt2OverPi * (v[i] + kCubic * v[i] * v[i] * v[i]);
      v[i] = 0.5f * v[i] * (1.0f + tanh_of<T>(u));
    }
    store(y + at, v);
    return largest_of(0.0f, v);
  }
};

template <class T>
struct Backward {
  using Stored = T;
  T* dx;
  const T *dy, *x;
  float* absmax;
  template <int kWidth>
  __device__ float apply(std::int64_t at) const {
    float v[kWidth], g[kWidth];
    load(v, x + at);
    load(g, dy + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float squared = v[i] * v[i];
      const float t = tanh_of<T>(kSqrt2OverPi * (v[i] + kCubic * v[i] * squared));
      const float du = kSqrt2OverPi * (1.0f + 3.0f * kCubic * squared);
      g[i] *= 0.5f * (1.0f + t) + 0.5f * v[i] * (1.0f - t * t) * du;
    }
    store(dx + at, g);
    return largest_of(0.0f, g);
  }
};

}  // namespace

void gelu_forward(Stream& stream, Tensor y, ConstTensor x, Tensor absmax) {
  if (absmax) cuda::fill(stream, absmax, 0.0f);
  with_float(x.dtype, [&]<class T>(T) {
    apply_to_packs<T>(stream, x.elements(), {y.data, x.data},
                      Forward<T>{y.as<T>(), x.as<T>(), absmax ? absmax.as<float>() : nullptr});
  });
}

void gelu_backward(Stream& stream, Tensor dx, ConstTensor dy, ConstTensor x, Tensor absmax) {
  if (absmax) cuda::fill(stream, absmax, 0.0f);
  with_float(x.dtype, [&]<class T>(T) {
    apply_to_packs<T>(
        stream, x.elements(), {dx.data, dy.data, x.data},
        Backward<T>{dx.as<T>(), dy.as<T>(), x.as<T>(), absmax ? absmax.as<float>() : nullptr});
  });
}

}  // namespace lockstep::cuda
