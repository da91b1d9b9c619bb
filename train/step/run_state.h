// RunState: what a checkpoint holds: named slices of tensors, and a few numbers beside them.
#pragma once

#include <vector>

#include "checkpoint/checkpointer.h"
#include "dist/param_store.h"
#include "train/step/optimizer.h"

namespace lockstep {

// What this rank has of it: each parameter's weight (its fp32 master where there is one),
// "NAME/adam_m", "NAME/adam_v", and "adamw/updates". What several ranks have, they share the saving
// of: each element is owned by one.
std::vector<StateSlice> state_slices(ParamStore& params, const Optimizer& optimizer);

// The weights alone, as generation and evaluation load them: one slice of each parameter.
std::vector<StateSlice> weight_slices(ParamStore& params);

}  // namespace lockstep
