// RunConfig: a run's configuration, with what it leaves open settled by what is here: what a row
// of the data is, how many threads compute, who computes attention. Made once; nothing changes it.
// And what a configuration makes of each part's own.
#pragma once

#include <cstdint>
#include <utility>

#include "core/stream.h"
#include "data/loader.h"
#include "dist/comms.h"
#include "train/config.h"
#include "train/step/training.h"

namespace lockstep {

struct RunConfig : Config {
  explicit RunConfig(Config settled) : Config(std::move(settled)) {}
};

// All ranks at once. `rows`: as the data are, see Sources::row_kind. Throws ConfigError where ranks
// on GPUs would compute with different GPUs or libraries, or train.attention cannot be had.
RunConfig settle(Config written, RowKind rows, Stream& compute, World& world);

int threads_of(const Config& config);  // what it says, or one for each processor allowed

TrainingConfig training_config(const Config& config);

Loader::Config train_loader(const Config& config, ShardFiles& files);

// Held-out rows in the order of the dataset, each once, up to eval.tokens.
Loader::Config validation_loader(const Config& config, ShardFiles& files);

// Of a sample's prompt and continuation, in tokens, at most.
std::int64_t sample_length(const Config& config);

}  // namespace lockstep
