// The naive float64 reference of the three products of a linear layer (kernels/matmul.h).
#pragma once

#include <cmath>
#include <numbers>

#include "tests/testing.h"

namespace lockstep::testing::reference {

struct MatmulSize {
  std::size_t N, I, O;
};

inline Doubles matmul(const Doubles& x, const Doubles& weight, MatmulSize size) {
  Doubles y(size.N * size.O);
  for (std::size_t n = 0; n < size.N; ++n)
    for (std::size_t o = 0; o < size.O; ++o) {
      double sum = 0;
      for (std::size_t i = 0; i < size.I; ++i)
        sum += x[n * size.I + i] * weight[o * size.I + i];
      y[n * size.O + o] = sum;
    }
  return y;
}

inline Doubles matmul_dx(const Doubles& dy, const Doubles& weight, MatmulSize size) {
  Doubles dx(size.N * size.I);
  for (std::size_t n = 0; n < size.N; ++n)
    for (std::size_t o = 0; o < size.O; ++o)
      for (std::size_t i = 0; i < size.I; ++i)
        dx[n * size.I + i] += dy[n * size.O + o] * weight[o * size.I + i];
  return dx;
}

inline Doubles matmul_dweight(const Doubles& dy, const Doubles& x, MatmulSize size) {
  Doubles dweight(size.O * size.I);
  for (std::size_t n = 0; n < size.N; ++n)
    for (std::size_t o = 0; o < size.O; ++o)
      for (std::size_t i = 0; i < size.I; ++i)
        dweight[o * size.I + i] += dy[n * size.O + o] * x[n * size.I + i];
  return dweight;
}

inline Doubles column_sums(const Doubles& a, std::size_t columns) {
  Doubles sums(columns);
  for (std::size_t i = 0; i < a.size(); ++i)
    sums[i % columns] += a[i];
  return sums;
}

inline double gelu_value(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

inline double gelu_slope_value(double x) {
  const double c = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(c * (x + 0.044715 * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

}  // namespace lockstep::testing::reference
