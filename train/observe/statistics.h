// Statistics of spikes: z-scores of a step against the steps before it.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "train/observe/step_report.h"

namespace lockstep {

// A loss with a z-score above this is a spike. Normal noise exceeds it once in 10^9 steps.
inline constexpr double kSpikeDeviations = 6;

// SlidingWindow holds the last 128 values.
class SlidingWindow {
 public:
  // Returns (value - mean) / standard deviation of the window. It is unknown (NaN) if the window
  // holds fewer than 16 values or only equal ones, or if `value` is not finite.
  double z_score(double value) const;
  void add(double value);              // ignores a value that is not finite
  std::vector<double> values() const;  // oldest first; adding them to an empty window restores it

 private:
  static constexpr std::size_t kSize = 128, kFewest = 16;
  std::array<double, kSize> values_{};
  std::size_t count_ = 0;  // number of added values
};

// Sets the z-scores of a report from the accepted steps before it. A skipped step changes no
// weight, so later steps are not compared with it.
struct SpikeStatistics {
  SlidingWindow loss, grad_norm;
  void observe(StepReport& report);
};

}  // namespace lockstep
