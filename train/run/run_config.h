// RunConfig: a run's configuration, with what it leaves open settled by what is here: what a row
// of the data is, how many threads compute, who computes attention. Made once; nothing changes it.
#pragma once

#include <utility>

#include "core/stream.h"
#include "dist/comms.h"
#include "train/config.h"

namespace lockstep {

struct RunConfig : Config {
  explicit RunConfig(Config settled) : Config(std::move(settled)) {}
};

// All ranks at once. `rows`: as the data are, see Sources::row_kind. Throws ConfigError where ranks
// on GPUs would compute with different GPUs or libraries, or train.attention cannot be had.
RunConfig settle(Config written, RowKind rows, Stream& compute, World& world);

}  // namespace lockstep
