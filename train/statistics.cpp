#include "train/statistics.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

double SlidingWindow::z_score(double value) const {
  const auto n = std::min(count_, kSize);
  if (n < kFewest || !std::isfinite(value)) return StepReport::kUnknown;
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < n; ++i)
    sum += values_[i];
  const double mean = sum / static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i)
    squares += (values_[i] - mean) * (values_[i] - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(n));
  return deviation > 0 ? (value - mean) / deviation : StepReport::kUnknown;
}

void SlidingWindow::add(double value) {
  if (std::isfinite(value)) values_[count_++ % kSize] = value;
}

void SpikeStatistics::observe(StepReport& report) {
  report.loss_z = loss_.z_score(report.loss);
  report.grad_norm_z = grad_norm_.z_score(report.grad_norm);
  if (report.skipped) return;
  loss_.add(report.loss);
  grad_norm_.add(report.grad_norm);
}

}  // namespace lockstep
