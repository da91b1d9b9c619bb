// The device that --device selects.
#pragma once

#include <string>

#include "core/tensor.h"

namespace lockstep {

// Accepts "cpu", "cuda" and "best" (a GPU if one is usable, otherwise the CPU). Throws UsageError
// for another name, and ConfigError with the reason if "cuda" has no usable GPU.
Device device_of(const std::string& name);

}  // namespace lockstep
