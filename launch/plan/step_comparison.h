// StepComparison: a mean step beside the one that was planned, component by component, as the log
// shows both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/component.h"
#include "core/tensor.h"
#include "train/observe/step_report.h"

namespace lockstep {

// The mean of steps. The first one that it is given warms up, and does not count.
class MeanStep {
 public:
  void add(const StepReport& report);
  void clear() { timed_ = all_ = 0, sum_ = {}, checkpoint_seconds_ = 0; }

  std::int64_t timed_steps() const { return timed_; }  // whose components are known
  StepTime time() const;                               // of them; of checkpoints, of all steps
  // What this rank needs of a step itself, without what it waits for others; NaN where no step was
  // timed.
  double own_seconds() const;

 private:
  bool is_warm_ = false;
  std::int64_t timed_ = 0, all_ = 0;
  StepTime sum_;
  double checkpoint_seconds_ = 0;
};

// A component that is off: by more than a tenth of its plan, and more than a hundredth of the step.
struct Deviation {
  Component component = Component::other;
  double planned = 0, measured = 0;
};
std::vector<Deviation> deviations(const StepTime& planned, const StepTime& measured);

// "products   281 ms   297 ms   +6%", a line for each component that has time, under a head and
// above their sum.
std::string comparison_table(const StepTime& planned, const StepTime& measured);

struct RunsOn {
  Device::Kind device = Device::Kind::cpu;
  int hosts = 1;
  std::vector<std::string> slowed_by{};  // what holds the clocks of the GPU down (GpuReading)
  std::string unlike_plan{};             // what the plan is not of, which says it all
};
// "\n  attention takes 37.1 ms, planned 31.0 ms (+20%): another engine ..." of each; of causes that
// come again "likewise".
std::string in_words(const std::vector<Deviation>& deviations, const RunsOn& where);

}  // namespace lockstep
