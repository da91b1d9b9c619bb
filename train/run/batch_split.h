// The division of a step's sequences among ranks and micro-batches.
#pragma once

#include <cstdint>
#include <string>

#include "train/config.h"

namespace lockstep {

// The sequences that ranks compute in a step. Each data-parallel rank computes the same number of
// whole micro-batches. Sequences beyond the step's own are masked padding: they cost compute and
// contribute no gradient.
struct StepSplit {
  std::int64_t sequences = 0;  // in the step
  std::int64_t data_ranks = 1;
  std::int64_t micro_batches = 1;  // of each data-parallel rank
  std::int64_t computed = 0;       // sequences that all ranks compute
};
StepSplit step_split(const Config& config);
// Describes the padding and how to avoid it; empty if no sequence is masked.
std::string masked_in_words(const Config& config);

}  // namespace lockstep
