// The StepShape of a run, for dist/volume.h.
#pragma once

#include "dist/volume.h"
#include "train/step/training.h"

namespace lockstep {

// The shape of a step on this rank. A Training on a measuring stream is enough.
StepShape step_shape(Training& training);

}  // namespace lockstep
