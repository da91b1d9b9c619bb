// How unusual a step is: z-scores against the steps before it.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "train/observe/step_report.h"

namespace lockstep {

// The last 128 values.
class SlidingWindow {
 public:
  // (value - mean) / standard deviation of the window; unknown (NaN) while it holds fewer than 16
  // values, where they are all equal, or where `value` is not finite.
  double z_score(double value) const;
  void add(double value);              // a value that is not finite is left out
  std::vector<double> values() const;  // from the oldest; added to an empty window, they restore it

 private:
  static constexpr std::size_t kSize = 128, kFewest = 16;
  std::array<double, kSize> values_{};
  std::size_t count_ = 0;  // added so far
};

// Fills in the z-scores of a report from the accepted steps before it. A skipped step changes no
// weight and is not what later steps are compared with.
struct SpikeStatistics {
  SlidingWindow loss, grad_norm;
  void observe(StepReport& report);
};

}  // namespace lockstep
