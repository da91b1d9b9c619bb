// The naive float64 reference of AdamW: Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2,
// with the global gradient norm clipped to 1.
#pragma once

#include <cmath>

#include "tests/testing.h"

namespace lockstep::testing::reference {

inline double squares(const Doubles& x) {
  double sum = 0;
  for (const double v : x)
    sum += v * v;
  return sum;
}

inline double mean_difference(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] - b[i];
  return sum / static_cast<double>(a.size());
}

struct AdamWStep {
  double rate, decay, scale = 1, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
};

struct AdamW {
  Doubles w, m, v;
  int updates = 0;

  void step(const Doubles& grad, const AdamWStep& s) {
    const double norm = s.scale * std::sqrt(squares(grad));
    const double scale = norm > 1 ? s.scale / norm : s.scale;
    ++updates;
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = grad[i] * scale;
      m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
      v[i] = s.beta2 * v[i] + (1 - s.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(s.beta1, updates));
      const double v_hat = v[i] / (1 - std::pow(s.beta2, updates));
      w[i] -= s.rate * (m_hat / (std::sqrt(v_hat) + s.epsilon) + s.decay * w[i]);
    }
  }
};

}  // namespace lockstep::testing::reference
