// RunState: what a checkpoint holds: named slices of tensors, and a few numbers beside them.
#pragma once

#include <vector>

#include "checkpoint/checkpointer.h"
#include "dist/param_store.h"
#include "train/optimizer.h"

namespace lockstep {

// What this rank has of it; what several have, one of them owns. Each parameter's weight (its fp32
// master where there is one), "NAME/adam_m", "NAME/adam_v", and "adamw/updates".
std::vector<StateSlice> state_slices(ParamStore& params, const Optimizer& optimizer);

// The weights alone, as generation and evaluation load them.
std::vector<StateSlice> weight_slices(ParamStore& params);

}  // namespace lockstep
