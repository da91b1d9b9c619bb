// state_slices() and weight_slices() list the state in a checkpoint as named slices of tensors.
#pragma once

#include <vector>

#include "checkpoint/checkpointer.h"
#include "dist/param_store.h"
#include "train/step/optimizer.h"

namespace lockstep {

// The slices of this rank: each parameter's weight (its fp32 master weight if there is one),
// "NAME/adam_m", "NAME/adam_v", and "adamw/updates". Ranks that hold the same elements share the
// save: each element has one owner.
std::vector<StateSlice> state_slices(ParamStore& params, const Optimizer& optimizer);

// Only the weights, for generation and evaluation: one slice of each parameter.
std::vector<StateSlice> weight_slices(ParamStore& params);

}  // namespace lockstep
