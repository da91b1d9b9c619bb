// Comparison of the tensors that weight files hold and the model does not read.
#pragma once

#include "train/interop/weight_files.h"
#include "train/interop/weight_parts.h"

namespace lockstep {

// Throws DataError naming a tensor that is not what config.json makes of it: the head of a tied
// model that differs from its embedding, a mask that is not causal, frequencies of another RoPE.
// Of a head, the elements of the embedding's slices in `parts` are compared: all ranks together
// compare all. Memory: two pieces of 512 KB.
void check_unread(const WeightFiles& files, const ModelConfig& config, const WeightParts& parts);

}  // namespace lockstep
