// restore() loads a run's state: from its newest checkpoint, from given weights, or from random
// ones.
#pragma once

#include "train/run/run_context.h"
#include "train/run/step_runner.h"

namespace lockstep {

// Restores the run. Collective. With --verify-resume it first recomputes steps. Throws ConfigError
// if the configuration does not match the checkpoint, and TransientError if the loaded weights are
// not the saved ones.
void restore(Run& run, StepRunner& steps);

}  // namespace lockstep
