// Checks of a run before it allocates memory and reads data. All ranks throw the same error. The
// log lists what is trained.
#pragma once

#include <span>
#include <string>

#include "data/loader.h"
#include "dist/comms.h"
#include "train/observe/meter.h"
#include "train/run/memory_budget.h"
#include "train/run/train_options.h"

namespace lockstep {

// Logs the model and its memory before the allocation, which takes seconds if it is large. Throws
// ConfigError if the memory is too small, also for a later phase. `others`: see room_here.
RunBytes announced_bytes(const Config& config, std::span<const RunPhase> later,
                         const Stream& compute, World& world, const Topology* topology,
                         const std::string& others);

// Checks that all ranks read the same data. Collective. `held_out` is data.validation, or null.
// Throws ConfigError if the data differ between ranks, or if `held_out` and the training data have
// different tokenizers. Warns if the data do not suit the model.
void check_data(const Config& config, const Sources& training, const Dataset* held_out,
                World& world);

// Logs the share and the epochs of each source of a mixture up to sample `end`. Warns if a source
// is repeated for many epochs.
void log_sources(const Config& config, const Sources& sources, std::int64_t end);

// Logs the data of a step and the formula of MFU. Warns of settings without effect.
void log_step(const Config& config, const Loader& loader, int ranks, const Meter::Config& meter);

}  // namespace lockstep
