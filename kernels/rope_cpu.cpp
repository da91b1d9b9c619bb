// Tokens are divided over threads; the cosines and sines of a token serve all its heads.
#include <cstdint>

#include "kernels/reduce.h"
#include "kernels/rope.h"

#include "kernels/cpu_begin.h"  // after every other include

#include "kernels/rotation_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

template <class T>
void rotate_head(T* v, const Rotation& rotation) {
  const auto half = rotation.half;
  for_vectors(half, [&](std::int64_t i, std::int64_t n) {
    const auto turned = rotation.of(load(v + i, n), load(v + half + i, n), i, n);
    store(v + i, turned.a, n);
    store(v + half + i, turned.b, n);
  });
}

void rotate(Stream& stream, Tensor qkv, ConstTensor table, ConstTensor positions, int heads,
            int kv_heads, float sign) {
  const auto N = qkv.shape[0], all_heads = qkv.shape[1], K = qkv.shape[2];
  with_float(qkv.dtype, [&]<class T>(T) {
    stream.parallel_ranges(N, 8, [&](std::int64_t begin, std::int64_t end) {
      for (auto n = begin; n < end; ++n) {
        const Rotation rotation(table, positions, n, sign);
        for (std::int64_t head = 0; head < heads + kv_heads; ++head)
          rotate_head(qkv.as<T>() + (n * all_heads + head) * K, rotation);
      }
    });
  });
}

}  // namespace

void rope_table(Stream& stream, Tensor table, float theta,
                const std::optional<RopeScaling>& scaling) {
  const auto P = table.shape[0], K = table.shape[1];
  stream.parallel_for(K / 2, [&](std::int64_t i, int) {
    const float f = inverse_frequency(i, K, theta, scaling);
    for (std::int64_t p = 0; p < P; ++p) {
      const float angle = static_cast<float>(p) * f;
      table.as<float>()[p * K + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      table.as<float>()[p * K + K / 2 + i] =
          static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  });
}

void rope_forward(Stream& stream, Tensor qkv, ConstTensor table, ConstTensor positions, int heads,
                  int kv_heads) {
  rotate(stream, qkv, table, positions, heads, kv_heads, 1.0f);
}

void rope_backward(Stream& stream, Tensor dqkv, ConstTensor table, ConstTensor positions, int heads,
                   int kv_heads, Tensor absmax) {
  rotate(stream, dqkv, table, positions, heads, kv_heads, -1.0f);
  if (absmax) lockstep::absmax(stream, absmax, dqkv);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
