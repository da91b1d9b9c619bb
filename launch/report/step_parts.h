// What the time of a step goes to: as planned, and as measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "train/observe/metrics_reader.h"
#include "train/observe/plan_file.h"

namespace lockstep {

struct StepPart {
  std::string name;
  // Seconds; NaN: not known. `corrected`: the plan's, by what earlier runs took.
  double planned = StepMetrics::kUnknown, corrected = StepMetrics::kUnknown;
  double measured = StepMetrics::kUnknown;
};

struct StepTimes {
  // In the order of Metric, without those that neither plan nor measure has, and behind them what
  // else a plan names. What a line leaves open of step_seconds is `other`.
  std::vector<StepPart> parts;
  StepPart whole;                       // step_seconds; a part's share is of it
  std::optional<StepPart> checkpoints;  // what steps wait for saves: beside them, no part

  double share(const StepPart& part) const { return part.measured / whole.measured; }
};

//   plan      nullptr: none
//   measured  the typical value of a metric; NaN: not known
StepTimes times_of_step(const PlanFile* plan, FunctionRef<double(Metric)> measured);

}  // namespace lockstep
