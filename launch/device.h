// What --device names.
#pragma once

#include <string>

#include "core/tensor.h"

namespace lockstep {

// Throws UsageError on another name than cpu or cuda, ConfigError where this build has no such
// backend.
Device device_of(const std::string& name);

}  // namespace lockstep
