// What --device names.
#pragma once

#include <string>

#include "core/tensor.h"

namespace lockstep {

// "cpu", "cuda", or "best": a GPU where one can be used, else the CPU. Throws UsageError on another
// name, ConfigError where there is no GPU, with the reason.
Device device_of(const std::string& name);

}  // namespace lockstep
