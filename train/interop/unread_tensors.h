// Checks of tensors in weight files that the model does not read.
#pragma once

#include "train/interop/slices_by_name.h"
#include "train/interop/weight_files.h"

namespace lockstep {

// Throws DataError naming a tensor that contradicts config.json: the head of a tied model that
// differs from its embedding, a mask that is not causal, or frequencies of another RoPE. Each rank
// compares the elements of its embedding slices in `parts` with the head, so all ranks together
// compare all elements. Memory: two buffers of 512 KB.
void check_unread(const WeightFiles& files, const ModelConfig& config, const SlicesByName& parts);

}  // namespace lockstep
