// RunConfig is a run's final configuration. It sets what depends on data and host: the kind of
// rows, the number of compute threads, and the attention kernels. It never changes afterwards. The
// functions below derive the configuration of each part.
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

// `written` with the kind of rows that its data have. Packed rows mask documents.
Config with_rows(Config written, RowKind rows);

// Settles `written`. Collective. `rows` is Sources::row_kind of the data. Throws ConfigError if
// ranks have different GPUs or libraries, or if train.attention is "cudnn" and cuDNN cannot compute
// it.
RunConfig settle(Config written, RowKind rows, Stream& compute, World& world);

int threads_of(const Config& config);  // train.threads, or one per CPU core allowed

TrainingConfig training_config(const Config& config);

Loader::Config train_loader(const Config& config, ShardFiles& files);

// Loads held-out rows in the order of the dataset, each once, up to eval.tokens.
Loader::Config validation_loader(const Config& config, ShardFiles& files);

// Upper bound of the tokens of a sample: prompt and continuation.
std::int64_t sample_length(const Config& config);

}  // namespace lockstep
