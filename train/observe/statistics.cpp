#include "train/observe/statistics.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

std::vector<double> SlidingWindow::values() const {
  std::vector<double> values;
  for (std::size_t i = count_ - std::min(count_, kSize); i < count_; ++i)
    values.push_back(values_[i % kSize]);
  return values;
}

// Sums start at the oldest value, so a saved and restored window gives the same bits.
double SlidingWindow::z_score(double value) const {
  const auto n = std::min(count_, kSize);
  if (n < kFewest || !std::isfinite(value)) return StepReport::kUnknown;
  double sum = 0, squares = 0;
  for (std::size_t i = count_ - n; i < count_; ++i)
    sum += values_[i % kSize];
  const double mean = sum / static_cast<double>(n);
  for (std::size_t i = count_ - n; i < count_; ++i)
    squares += (values_[i % kSize] - mean) * (values_[i % kSize] - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(n));
  return deviation > 0 ? (value - mean) / deviation : StepReport::kUnknown;
}

void SlidingWindow::add(double value) {
  if (std::isfinite(value)) values_[count_++ % kSize] = value;
}

void SpikeStatistics::observe(StepReport& report) {
  report.loss_z = loss.z_score(report.loss);
  report.grad_norm_z = grad_norm.z_score(report.grad_norm);
  if (report.skipped) return;
  loss.add(report.loss);
  grad_norm.add(report.grad_norm);
}

}  // namespace lockstep
