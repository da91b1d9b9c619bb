// StepObserver observes a run's steps from outside, for example to compare them with a plan. Each
// rank has one.
#pragma once

#include <functional>
#include <memory>

#include "train/observe/step_report.h"

namespace lockstep {

struct Run;

class StepObserver {
 public:
  StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;
  virtual ~StepObserver() = default;

  virtual void open() = 0;  // on rank 0, before the first step
  // On every rank after each step: before it is logged, and after its line was printed.
  // is_comparison: a comparison with the plan is due (plan.compare_every_steps).
  virtual void fill_in(StepReport& report) = 0;
  virtual void observe(StepReport& report, bool is_comparison) = 0;
  virtual void meter_changed() = 0;  // after the meter has another peak
  virtual void end() = 0;            // on rank 0, after the last step
};

// The run must outlive the observer.
using MakeStepObserver = std::function<std::unique_ptr<StepObserver>(Run& run)>;

}  // namespace lockstep
