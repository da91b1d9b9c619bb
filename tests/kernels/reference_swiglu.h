// The naive float64 reference of SwiGLU (kernels/swiglu.h); rows are gate [F], then up [F].
#pragma once

#include <cmath>

#include "tests/testing.h"

namespace lockstep::testing::reference {

inline Doubles swiglu(const Doubles& gate_up, std::size_t F) {
  Doubles hidden(gate_up.size() / 2);
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const auto gate = i / F * 2 * F + i % F;
    hidden[i] = gate_up[gate] / (1 + std::exp(-gate_up[gate])) * gate_up[gate + F];
  }
  return hidden;
}

inline Doubles swiglu_gradient(const Doubles& dhidden, const Doubles& gate_up, std::size_t F) {
  Doubles gradient(gate_up.size());
  for (std::size_t i = 0; i < dhidden.size(); ++i) {
    const auto gate = i / F * 2 * F + i % F;
    const double a = gate_up[gate], s = 1 / (1 + std::exp(-a));
    gradient[gate] = dhidden[i] * gate_up[gate + F] * s * (1 + a * (1 - s));
    gradient[gate + F] = dhidden[i] * a * s;
  }
  return gradient;
}

}  // namespace lockstep::testing::reference
