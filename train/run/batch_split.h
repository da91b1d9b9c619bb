// How the sequences of a step are divided among ranks and micro-batches.
#pragma once

#include <cstdint>
#include <string>

#include "train/config.h"

namespace lockstep {

// What ranks compute in a step: each of those that read data as many whole micro-batches. What is
// beyond the step's sequences is masked: it takes as long as they do, and teaches nothing.
struct StepSplit {
  std::int64_t sequences = 0;  // of the step
  std::int64_t data_ranks = 1;
  std::int64_t micro_batches = 1;  // of each
  std::int64_t computed = 0;       // sequences, of all
};
StepSplit step_split(const Config& config);
// A sentence of it, with what would leave none; nothing where there is none.
std::string masked_in_words(const Config& config);

}  // namespace lockstep
