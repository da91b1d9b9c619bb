// The naive float64 reference of the operators: written from the formulas, loops as in a textbook.
// Each gradient here is itself checked by finite differences in the operator's test.
#pragma once

#include <cmath>

#include "tests/testing.h"

namespace lockstep::testing::reference {

inline Doubles add(const Doubles& a, const Doubles& b) {
  Doubles c(a.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    c[i] = a[i] + b[i];
  return c;
}

inline double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

struct RmsNormResult {
  Doubles y, rstd;
};
inline RmsNormResult rmsnorm(const Doubles& s, const Doubles& weight, double epsilon) {
  const auto D = weight.size(), N = s.size() / D;
  RmsNormResult r{Doubles(s.size()), Doubles(N)};
  for (std::size_t n = 0; n < N; ++n) {
    double squares = 0;
    for (std::size_t d = 0; d < D; ++d)
      squares += s[n * D + d] * s[n * D + d];
    r.rstd[n] = 1 / std::sqrt(squares / static_cast<double>(D) + epsilon);
    for (std::size_t d = 0; d < D; ++d)
      r.y[n * D + d] = s[n * D + d] * r.rstd[n] * weight[d];
  }
  return r;
}

struct RmsNormGradient {
  Doubles ds, dweight;
};
inline RmsNormGradient rmsnorm_gradient(const Doubles& dy, const Doubles& s, const Doubles& weight,
                                        double epsilon) {
  const auto D = weight.size(), N = s.size() / D;
  const auto rstd = rmsnorm(s, weight, epsilon).rstd;
  RmsNormGradient g{Doubles(s.size()), Doubles(D)};
  for (std::size_t n = 0; n < N; ++n) {
    double products = 0;
    for (std::size_t d = 0; d < D; ++d)
      products += dy[n * D + d] * weight[d] * s[n * D + d];
    for (std::size_t d = 0; d < D; ++d) {
      const auto i = n * D + d;
      g.ds[i] = rstd[n] *
                (dy[i] * weight[d] - s[i] * rstd[n] * rstd[n] * products / static_cast<double>(D));
      g.dweight[d] += dy[i] * s[i] * rstd[n];
    }
  }
  return g;
}

}  // namespace lockstep::testing::reference
