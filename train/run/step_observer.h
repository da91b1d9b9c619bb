// StepObserver: what looks at a run's steps from outside of it, as a plan does. Each rank has one.
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

  virtual void open() = 0;  // rank 0, when the first step begins
  // Every rank, after each step: before it is logged, and after its line was printed.
  virtual void fill_in(StepReport& report) = 0;
  virtual void observe(StepReport& report) = 0;
  virtual void meter_changed() = 0;  // it has another peak
  virtual void end() = 0;            // rank 0, after the last step
};

// The run outlives what is made.
using MakeStepObserver = std::function<std::unique_ptr<StepObserver>(Run& run)>;

}  // namespace lockstep
