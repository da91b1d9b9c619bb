// This file multiplies few rows of A (decoding). Each weight is read once, so that memory limits
// the speed. Packing would write and read it again. The sum of an element does not depend on the
// number of rows. It is kWide sums over k in steps of a vector, which are then added in a fixed
// tree. This file is included only between cpu_begin.h and cpu_end.h.
#pragma once

#include "kernels/matmul_pack_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

inline constexpr int kColumnsAtOnce = kVectorBytes == 64 ? 4 : 2, kRowsAtOnce = 4;

LOCKSTEP_INLINE float horizontal_sum(Vec v) {
  float a[kWide];
  store_words(a, (VecWords)v);
  for (int width = kWide / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      a[i] += a[i + width];
  return a[0];
}

// Computes out[r * out_stride + c] = the dot product of row r of a and column c of b, over k
// elements.
template <int Rows, int Columns, class T>
void dot_rows(float* out, std::int64_t out_stride, const T* a, std::int64_t a_stride, const T* b,
              std::int64_t b_stride, std::int64_t k) {
  constexpr int kStep = kWide * kPerWord<T>;
  Vec sums[Rows][Columns] = {};
  const auto step = [&](std::int64_t i, auto... elements) {
    VecWords columns[Columns];
    for (int c = 0; c < Columns; ++c)
      columns[c] = read_words(b + c * b_stride + i, elements...);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const VecWords row = read_words(a + r * a_stride + i, elements...);
      for (int c = 0; c < Columns; ++c)
        sums[r][c] = multiply_add<T>(sums[r][c], row, columns[c]);
    }
  };
  std::int64_t i = 0;
  for (; i + kStep <= k; i += kStep)
    step(i);
  if (i < k) step(i, k - i);
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r)
    for (int c = 0; c < Columns; ++c)
      out[r * out_stride + c] = horizontal_sum(sums[r][c]);
}

}  // namespace
}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE
