#include "train/observe/meter.h"

#include <algorithm>

#include "train/step/memory.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMemorySteps = 20;

// Seconds per token at the peak.
double seconds_at_peak(const Meter::Config& c, double flops) {
  const double fp8 = c.fp8_flops_per_token;
  return (flops - fp8) / c.peak_flops + (fp8 > 0 ? fp8 / c.fp8_peak_flops : 0.0);
}

double per_step(double seconds, std::int64_t every_steps) {
  return every_steps > 0 ? seconds / static_cast<double>(every_steps) : 0.0;
}

}  // namespace

StepReport Meter::step(std::int64_t step, double seconds) {
  StepReport report;
  report.step = step;
  report.steps = config_.steps;
  report.step_seconds = seconds;
  report.tokens_per_second = static_cast<double>(config_.step_tokens) / seconds;
  const auto utilization = config_.utilization(report.tokens_per_second);
  report.model_flops_utilization = utilization.causal;
  report.model_flops_utilization_square = utilization.square;
  report.peak_is_too_low = config_.is_peak_too_low(report.tokens_per_second);
  // The query of a GPU's memory is slow, and a run allocates its memory before the first step.
  if (config_.device.kind == Device::Kind::cpu || measured_steps_ % kMemorySteps == 0)
    used_bytes_ = used_memory_bytes(config_.device);
  report.peak_bytes = used_bytes_;
  report.limit_bytes = config_.limit_bytes;

  // The first step warms caches and touches memory, so the second one replaces its time.
  ++measured_steps_;
  const double weight = measured_steps_ <= 2
                            ? 1.0
                            : std::max(1.0 / 20, 1.0 / static_cast<double>(measured_steps_ - 1));
  smooth_step_seconds_ += weight * (seconds - smooth_step_seconds_);
  report.eta_seconds = eta_seconds(step);
  return report;
}

void Meter::spent_evaluating(double seconds, std::int64_t every_steps) {
  evaluation_seconds_per_step_ = per_step(seconds, every_steps);
}

void Meter::spent_saving(double seconds, std::int64_t every_steps) {
  checkpoint_seconds_per_step_ = per_step(seconds, every_steps);
}

Utilization Meter::Config::utilization(double tokens_per_second) const {
  if (!(peak_flops > 0) || is_peak_too_low(tokens_per_second)) return {};
  return {.causal = tokens_per_second * seconds_at_peak(*this, flops_per_token),
          .square = tokens_per_second * seconds_at_peak(*this, flops_per_token_square)};
}

bool Meter::Config::is_peak_too_low(double tokens_per_second) const {
  return peak_flops > 0 &&
         tokens_per_second * seconds_at_peak(*this, flops_per_token) > kMostUtilization;
}

double Meter::cost_after(std::int64_t step) const {
  double sum = 0, cost = 1;
  for (const auto& later : config_.later) {
    const auto end = std::min(later.from_step, config_.steps);
    sum += cost * static_cast<double>(std::max<std::int64_t>(end - step, 0));
    step = std::max(step, end);
    cost = later.cost;
  }
  return sum + cost * static_cast<double>(config_.steps - step);
}

double Meter::eta_seconds(std::int64_t step) const {
  return cost_after(step) * smooth_step_seconds_ +
         static_cast<double>(config_.steps - step) *
             (evaluation_seconds_per_step_ + checkpoint_seconds_per_step_);
}

}  // namespace lockstep
