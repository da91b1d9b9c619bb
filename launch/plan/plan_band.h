// plan_band returns how far the time of a step may be from its plan.
#pragma once

#include "launch/plan/cluster.h"
#include "train/observe/plan_file.h"

namespace lockstep {

// From runs of a kind that were predicted without being fitted (docs/planning.md, "Bands"): on GPUs
// by their number, on CPUs if the cluster was measured. Otherwise the band is unknown.
PlanFile::Band plan_band(const Cluster& cluster, int ranks);

}  // namespace lockstep
