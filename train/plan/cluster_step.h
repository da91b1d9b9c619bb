// What a recorded step takes on a Cluster, without what it waits for data and checkpoints: calls as
// measured there, else as ClusterPrices has them; what runs beside them slows them as measured,
// else as the hardware is known for (docs/planning.md).
#pragma once

#include "train/plan/cluster.h"
#include "train/plan/step_program.h"
#include "train/plan/step_time.h"

namespace lockstep {

StepTime step_time_on(const Cluster& cluster, const StepProgram& program);

}  // namespace lockstep
