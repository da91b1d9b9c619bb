// Start: a run takes up the state of its newest checkpoint, or of weights that it starts from, or
// random ones.
#pragma once

#include "core/function_ref.h"
#include "train/run/replay.h"
#include "train/run/run.h"

namespace lockstep {

// All ranks at once. compute_step: enqueues a step and waits for it, for --verify-resume. Throws
// ConfigError where the configuration cannot go on from what is there, TransientError where the
// weights that came are not those that were saved.
void start(Run& run, FunctionRef<RecordedStep()> compute_step);

}  // namespace lockstep
