// What a step of a run is in numbers, for dist/volume.h.
#pragma once

#include "dist/volume.h"
#include "train/step/training.h"

namespace lockstep {

// Of this rank; measuring is enough.
StepShape step_shape(Training& training);

}  // namespace lockstep
