// Restore: a run takes up the state of its newest checkpoint, or of weights that it starts from, or
// random ones.
#pragma once

#include "train/run/run_context.h"
#include "train/run/step_runner.h"

namespace lockstep {

// All ranks at once. With --verify-resume, steps are computed again first. Throws ConfigError where
// the configuration cannot go on from what is there, TransientError where the weights that came are
// not those that were saved.
void restore(Run& run, StepRunner& steps);

}  // namespace lockstep
