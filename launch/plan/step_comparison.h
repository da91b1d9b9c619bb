// StepComparison compares a mean step with the planned step by component, for the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/component.h"
#include "core/tensor.h"
#include "train/observe/step_report.h"

namespace lockstep {

// MeanStep computes the mean of steps. The first step is a warm-up and does not count.
class MeanStep {
 public:
  void add(const StepReport& report);
  void clear() { timed_ = all_ = 0, sum_ = {}, checkpoint_seconds_ = 0; }

  std::int64_t timed_steps() const { return timed_; }  // steps whose components are known
  StepTime time() const;  // mean of the timed steps; for checkpoints, mean of all steps
  // Time of this rank in a step without waiting for other ranks; NaN if no step was timed.
  double own_seconds() const;

 private:
  bool is_warm_ = false;
  std::int64_t timed_ = 0, all_ = 0;
  StepTime sum_;
  double checkpoint_seconds_ = 0;
};

// A component that differs from the plan by more than 10% of its planned time and 1% of the step.
struct Deviation {
  Component component = Component::other;
  double planned = 0, measured = 0;
};
std::vector<Deviation> deviations(const StepTime& planned, const StepTime& measured);

// Formats a table with a header, one line per component ("products   281 ms   297 ms   +6%") and
// the sum. Components without time are omitted.
std::string comparison_table(const StepTime& planned, const StepTime& measured);

struct RunsOn {
  Device::Kind device = Device::Kind::cpu;
  int hosts = 1;
  std::vector<std::string> slowed_by{};  // causes of throttled GPU clocks (GpuReading)
  std::string unlike_plan{};             // difference between run and plan; replaces all causes
};
// Formats each deviation with its likely cause: "\n  attention takes 37.1 ms, planned 31.0 ms
// (+20%): another engine ...". A repeated cause becomes "same cause".
std::string in_words(const std::vector<Deviation>& deviations, const RunsOn& where);

}  // namespace lockstep
