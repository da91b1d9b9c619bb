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

std::int64_t LearningRate::last_before_decay() const {
  const auto length = steps - begin;
  const auto decay = schedule.decay_steps > 0
                         ? schedule.decay_steps
                         : std::llround(schedule.decay_fraction * static_cast<double>(length));
  return begin + std::max<std::int64_t>(schedule.warmup_steps, length - decay);
}

double LearningRate::at(std::int64_t step) const {
  if (step - begin <= schedule.warmup_steps)
    return initial + (peak - initial) * static_cast<double>(step - begin) /
                         static_cast<double>(schedule.warmup_steps);
  const auto stable = last_before_decay();
  if (step <= stable || schedule.kind == Config::Decay::constant) return peak;
  const double x =
      step > steps ? 1.0
                   : static_cast<double>(step - 1 - stable) / static_cast<double>(steps - stable);
  const double r = schedule.final_ratio;
  return peak * (r + (1 - r) * decayed(schedule.kind, x));
}

}  // namespace lockstep
