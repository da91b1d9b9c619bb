// What all ranks of a run check before it takes memory and reads data. What cannot go is refused,
// on all of them, and the log says what is trained.
#pragma once

#include <string>

#include "data/loader.h"
#include "dist/comms.h"
#include "train/observe/meter.h"
#include "train/run/memory_budget.h"

namespace lockstep {

// Says what is trained, and in how much memory, before the memory is taken: where it is large, the
// system needs seconds for it. Throws ConfigError where there is less. `others`: see
// room_here.
RunBytes announced_bytes(const Config& config, const Stream& compute, World& world,
                         const std::string& others);

// All ranks at once: they read the same data. `held_out`: of data.validation; may be absent. Throws
// ConfigError where they do not, or its tokens cannot be those of the tokenizer of the training
// data; warns of data that are not what the model is for.
void check_data(const Config& config, const Sources& training, const Dataset* held_out,
                World& world);

// Says of a mixture what a run up to sample `end` makes of each source; warns where that is many
// epochs.
void log_sources(const Config& config, const Sources& sources, std::int64_t end);

// Says what a step takes and what MFU means here; warns of settings that do nothing.
void log_step(const Config& config, const Loader& loader, int ranks, const Meter::Config& meter);

}  // namespace lockstep
