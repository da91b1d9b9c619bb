// The parts of the time of a step, planned and measured.
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
  // Seconds; NaN: unknown. `corrected`: planned time corrected by earlier runs.
  double planned = StepMetrics::kUnknown, corrected = StepMetrics::kUnknown;
  double measured = StepMetrics::kUnknown;
};

struct StepTimes {
  // Parts in the order of Metric, then other parts that a plan names. Parts without planned and
  // measured time are omitted. The rest of step_seconds is `other`.
  std::vector<StepPart> parts;
  StepPart whole;                       // step_seconds, the basis of shares
  std::optional<StepPart> checkpoints;  // waits for saves, which are not part of a step

  double share(const StepPart& part) const { return part.measured / whole.measured; }
};

//   plan      nullptr: none
//   measured  typical value of a metric; NaN: unknown
StepTimes times_of_step(const PlanFile* plan, FunctionRef<double(Metric)> measured);

}  // namespace lockstep
