#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {
namespace {

double decayed(Config::Decay kind, double x) {
  switch (kind) {
    case Config::Decay::cosine: return 0.5 * (1 + std::cos(std::numbers::pi * x));
    case Config::Decay::linear: return 1 - x;
    case Config::Decay::wsd: return 1 - std::sqrt(x);
    case Config::Decay::constant: return 1;
  }
  return 1;
}

}  // namespace

double learning_rate(const Config::Schedule& schedule, double peak, std::int64_t step,
                     std::int64_t steps) {
  if (step <= schedule.warmup_steps)
    return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  const auto decay_steps = std::llround(schedule.decay_fraction * static_cast<double>(steps));
  const auto stable = std::max<std::int64_t>(schedule.warmup_steps, steps - decay_steps);
  if (step <= stable || schedule.kind == Config::Decay::constant) return peak;
  const double x =
      step > steps ? 1.0
                   : static_cast<double>(step - 1 - stable) / static_cast<double>(steps - stable);
  const double r = schedule.final_ratio;
  return peak * (r + (1 - r) * decayed(schedule.kind, x));
}

}  // namespace lockstep
