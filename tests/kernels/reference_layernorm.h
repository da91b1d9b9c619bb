// The naive float64 reference of LayerNorm (kernels/layernorm.h).
#pragma once

#include <cmath>

#include "tests/testing.h"

namespace lockstep::testing::reference {

struct LayerNormResult {
  Doubles y, stats;  // stats: mean, rstd of each row
};
inline LayerNormResult layernorm(const Doubles& s, const Doubles& weight, const Doubles& bias,
                                 double epsilon) {
  const auto D = weight.size(), N = s.size() / D;
  LayerNormResult r{Doubles(s.size()), Doubles(2 * N)};
  for (std::size_t n = 0; n < N; ++n) {
    double mean = 0, variance = 0;
    for (std::size_t d = 0; d < D; ++d)
      mean += s[n * D + d] / static_cast<double>(D);
    for (std::size_t d = 0; d < D; ++d)
      variance += (s[n * D + d] - mean) * (s[n * D + d] - mean) / static_cast<double>(D);
    const double rstd = 1 / std::sqrt(variance + epsilon);
    r.stats[2 * n] = mean;
    r.stats[2 * n + 1] = rstd;
    for (std::size_t d = 0; d < D; ++d)
      r.y[n * D + d] = (s[n * D + d] - mean) * rstd * weight[d] + bias[d];
  }
  return r;
}

struct LayerNormGradient {
  Doubles ds, dweight, dbias;
};
inline LayerNormGradient layernorm_gradient(const Doubles& dy, const Doubles& s,
                                            const Doubles& weight, double epsilon) {
  const auto D = weight.size(), N = s.size() / D;
  const auto stats = layernorm(s, weight, Doubles(D), epsilon).stats;
  LayerNormGradient g{Doubles(s.size()), Doubles(D), Doubles(D)};
  for (std::size_t n = 0; n < N; ++n) {
    const double mean = stats[2 * n], rstd = stats[2 * n + 1];
    double g_mean = 0, gz_mean = 0;
    for (std::size_t d = 0; d < D; ++d) {
      const auto i = n * D + d;
      const double z = (s[i] - mean) * rstd;
      g_mean += dy[i] * weight[d] / static_cast<double>(D);
      gz_mean += dy[i] * weight[d] * z / static_cast<double>(D);
      g.dweight[d] += dy[i] * z;
      g.dbias[d] += dy[i];
    }
    for (std::size_t d = 0; d < D; ++d) {
      const auto i = n * D + d;
      const double z = (s[i] - mean) * rstd;
      g.ds[i] = rstd * (dy[i] * weight[d] - g_mean - z * gz_mean);
    }
  }
  return g;
}

}  // namespace lockstep::testing::reference
