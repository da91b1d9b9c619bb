// The naive float64 reference of the operators, written from the formulas with plain loops.
// Each gradient here is itself checked by finite differences in the operator's test.
#pragma once

#include <cmath>
#include <numbers>

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

// LayerNorm (kernels/layernorm.h).

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

// SwiGLU (kernels/swiglu.h); rows are gate [F], then up [F].

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

// The three matmuls of a linear layer (kernels/matmul.h), and GELU.

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

// The loss (kernels/cross_entropy.h).

struct CrossEntropySetting {
  std::size_t columns, vocabulary;
  double gradient_scale = 1, z_loss = 0;
};

inline double log_sum_exp(const Doubles& logits, std::size_t row, CrossEntropySetting s) {
  double largest = logits[row * s.columns], sum = 0;
  for (std::size_t v = 0; v < s.vocabulary; ++v)
    largest = std::max(largest, logits[row * s.columns + v]);
  for (std::size_t v = 0; v < s.vocabulary; ++v)
    sum += std::exp(logits[row * s.columns + v] - largest);
  return largest + std::log(sum);
}

inline Doubles cross_entropy(const Doubles& logits, const std::vector<std::int32_t>& targets,
                             CrossEntropySetting s) {
  Doubles losses(targets.size());
  for (std::size_t n = 0; n < targets.size(); ++n) {
    if (targets[n] < 0) continue;
    const double lse = log_sum_exp(logits, n, s);
    losses[n] =
        lse - logits[n * s.columns + static_cast<std::size_t>(targets[n])] + s.z_loss * lse * lse;
  }
  return losses;
}

inline Doubles cross_entropy_gradient(const Doubles& logits,
                                      const std::vector<std::int32_t>& targets,
                                      CrossEntropySetting s) {
  Doubles gradient(logits.size());
  for (std::size_t n = 0; n < targets.size(); ++n) {
    if (targets[n] < 0) continue;
    const double lse = log_sum_exp(logits, n, s);
    for (std::size_t v = 0; v < s.vocabulary; ++v) {
      const auto i = n * s.columns + v;
      const double softmax = std::exp(logits[i] - lse);
      const double hit = static_cast<std::size_t>(targets[n]) == v ? 1 : 0;
      gradient[i] = s.gradient_scale * (softmax - hit + 2 * s.z_loss * lse * softmax);
    }
  }
  return gradient;
}

// AdamW: Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2, with the global gradient norm
// clipped to 1.

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
