// Who computes the attention of a run.
#pragma once

#include <string>

#include "core/stream.h"
#include "train/config.h"

namespace lockstep {

// Who computes attention on `compute`: whom train.attention names; for auto cuDNN where it can,
// else the own kernels, and the log says why. cuDNN is prepared then. Throws ConfigError where it
// is named and cannot.
Config::Attention attention_of(const Config& config, Stream& compute);

// The same on a machine that is not here, where cuDNN is taken to be there.
Config::Attention planned_attention(const Config& config, Device device);

std::string in_words(Config::Attention settled);  // "cuDNN 9.19.0", "own kernels"

}  // namespace lockstep
