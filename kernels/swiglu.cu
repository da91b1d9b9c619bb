// A block computes a run of columns of one row.
#include "kernels/device.cuh"
#include "kernels/elementwise.h"
#include "kernels/launch.cuh"
#include "kernels/swiglu.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
__device__ inline float sigmoid(float a) {
  return 1.0f / (1.0f + exponential<T>(-a));
}

template <class T, int kWidth>
__global__ void swiglu_forward_kernel(T* hidden, const T* gate_up, float* absmax, int F) {
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const int f = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * kWidth;
  float a[kWidth], u[kWidth] = {};
  if (f < F) {
    const T* gate = gate_up + row * 2 * F + f;
    load(a, gate);
    load(u, gate + F);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      u[i] *= a[i] * sigmoid<T>(a[i]);
    store(hidden + row * F + f, u);
  }
  if (absmax != nullptr) raise_stored<T>(absmax, largest_of(0.0f, u));
}

template <class T, int kWidth>
__global__ void swiglu_backward_kernel(T* dgate_up, const T* dhidden, const T* gate_up,
                                       float* absmax, int F) {
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const int f = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * kWidth;
  float a[kWidth] = {}, u[kWidth] = {}, g[kWidth];
  if (f < F) {
    const auto at = row * 2 * F + f;
    load(a, gate_up + at);
    load(u, gate_up + at + F);
    load(g, dhidden + row * F + f);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float s = sigmoid<T>(a[i]);
      const float dup = g[i] * a[i] * s;
      a[i] = g[i] * u[i] * s * (1.0f + a[i] * (1.0f - s));
      u[i] = dup;
    }
    store(dgate_up + at, a);
    store(dgate_up + at + F, u);
  }
  if (absmax != nullptr) raise_stored<T>(absmax, largest_of(largest_of(0.0f, a), u));
}

Launch shape(std::int64_t N, std::int64_t F, int width) {
  return {{static_cast<unsigned>(N), static_cast<unsigned>(divide_up(F, kThreads * width))},
          kThreads};
}

}  // namespace

void swiglu_forward(Stream& stream, Tensor hidden, ConstTensor gate_up, Tensor absmax) {
  const auto N = hidden.shape[0], F = hidden.shape[1];
  if (absmax) cuda::fill(stream, absmax, 0.0f);
  with_float(hidden.dtype, [&]<class T>(T) {
    with_width<T>(F, {hidden.data, gate_up.data}, [&](auto width) {
      launch(stream, shape(N, F, width), swiglu_forward_kernel<T, width>, hidden.as<T>(),
             gate_up.as<T>(), absmax ? absmax.as<float>() : nullptr, static_cast<int>(F));
    });
  });
}

void swiglu_backward(Stream& stream, Tensor dgate_up, ConstTensor dhidden, ConstTensor gate_up,
                     Tensor absmax) {
  const auto N = dhidden.shape[0], F = dhidden.shape[1];
  if (absmax) cuda::fill(stream, absmax, 0.0f);
  with_float(dhidden.dtype, [&]<class T>(T) {
    with_width<T>(F, {dgate_up.data, dhidden.data, gate_up.data}, [&](auto width) {
      launch(stream, shape(N, F, width), swiglu_backward_kernel<T, width>, dgate_up.as<T>(),
             dhidden.as<T>(), gate_up.as<T>(), absmax ? absmax.as<float>() : nullptr,
             static_cast<int>(F));
    });
  });
}

}  // namespace lockstep::cuda
