// The naive float64 reference of the loss (kernels/cross_entropy.h).
#pragma once

#include <cmath>

#include "tests/testing.h"

namespace lockstep::testing::reference {

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

}  // namespace lockstep::testing::reference
