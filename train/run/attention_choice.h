// The attention kernels of a run: cuDNN or Lockstep's own.
#pragma once

#include <string>

#include "core/stream.h"
#include "train/config.h"

namespace lockstep {

// Chooses the attention kernels on `compute`. train.attention names them; "auto" takes cuDNN if it
// can compute this attention, else the own kernels, and logs the reason. cuDNN is then prepared.
// Throws ConfigError if train.attention is "cudnn" and cuDNN cannot compute it.
Config::Attention attention_of(const Config& config, Stream& compute);

// The same choice for a planned host, on which cuDNN is assumed to be installed.
Config::Attention planned_attention(const Config& config, Device device);

std::string in_words(Config::Attention settled);  // "cuDNN 9.19.0", "own kernels"

}  // namespace lockstep
