// This file applies functions to whole tensors element by element, one pack per thread.
#pragma once

#include "kernels/device.cuh"
#include "kernels/launch.cuh"

namespace lockstep {

template <int kWidth, class Body>
__global__ void packs_kernel(std::int64_t n, Body body) {
  const auto i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kWidth;
  // Elements after the last pack are fewer than a pack; the thread after it processes them.
  const auto whole = n - n % kWidth;
  if constexpr (requires { body.absmax; }) {
    float most = 0.0f;
    if (i + kWidth <= n) most = body.template apply<kWidth>(i);
    if (kWidth > 1 && i == whole)
      for (auto j = whole; j < n; ++j)
        most = fmaxf(most, body.template apply<1>(j));
    if (body.absmax != nullptr) raise_stored<typename Body::Stored>(body.absmax, most);
  } else {
    if (i + kWidth <= n) body.template apply<kWidth>(i);
    if (kWidth > 1 && i == whole)
      for (auto j = whole; j < n; ++j)
        body.template apply<1>(j);
  }
}

// Calls body.apply<kWidth>(i) on the device for the elements [i, i + kWidth) of n, and
// body.apply<1> for elements after the last pack. If the body has a member `absmax`, apply returns
// the largest magnitude that it stored. *absmax is raised to it, rounded to Body::Stored, unless
// absmax is nullptr.
template <int kWidth, class Body>
void launch_packs(Stream& stream, std::int64_t n, const Body& body) {
  constexpr int kThreads = 256;
  const auto blocks = divide_up(divide_up(n, kWidth), kThreads);
  launch(stream, {static_cast<unsigned>(blocks), kThreads}, packs_kernel<kWidth, Body>, n, body);
}

// Does the same in the widest packs of T that can be read and written at `addresses`.
template <class T, class Body>
void apply_to_packs(Stream& stream, std::int64_t n, std::initializer_list<const void*> addresses,
                    const Body& body) {
  with_width<T>(0, addresses, [&](auto width) { launch_packs<width>(stream, n, body); });
}

}  // namespace lockstep
