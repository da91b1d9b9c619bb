// plan_band returns how far the time of a step may be from its plan.
#pragma once

#include <string>

#include "launch/plan/cluster.h"
#include "train/observe/plan_file.h"

namespace lockstep {

struct PlanBand {
  PlanFile::Band band;
  std::string runs;  // "published runs on 9 to 128 GPUs"
};

// Range of measured / planned step time of 80 % of similar runs (docs/planning.md, "Bands"). On
// GPUs it depends on their number. It is unknown on GPUs without published runs, and on CPUs that
// were not measured.
PlanBand plan_band(const Cluster& cluster, int ranks);

}  // namespace lockstep
