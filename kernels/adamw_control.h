// decide_update computes the decision of adamw_control in float64, the same on every device.
#pragma once

#include <cmath>

#include "kernels/adamw.h"

namespace lockstep {

// Writes control [5] and advances updates [1], see adamw.h.
LOCKSTEP_HOST_DEVICE inline void decide_update(float* control, std::int32_t* updates, float squares,
                                               float loss, std::int32_t valid_tokens,
                                               const AdamWConfig& config) {
  const double s = valid_tokens > 0 ? static_cast<double>(config.nominal_tokens) /
                                          static_cast<double>(valid_tokens)
                                    : 0;
  const double norm = s == 0 ? 0 : s * std::sqrt(static_cast<double>(squares));
  const bool apply = valid_tokens > 0 && std::isfinite(norm) && std::isfinite(loss);
  const bool clip = config.clip_norm > 0 && norm > static_cast<double>(config.clip_norm);
  if (apply) ++*updates;
  const auto correction = [&](float beta) {
    return apply ? static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta), *updates)))
                 : 1.0f;
  };
  control[0] =
      apply ? static_cast<float>(clip ? s * static_cast<double>(config.clip_norm) / norm : s) : 0;
  control[1] = correction(config.beta1);
  control[2] = correction(config.beta2);
  control[3] = apply ? 1 : 0;
  control[4] = static_cast<float>(norm);
}

}  // namespace lockstep
