// The device that --device selects.
#pragma once

#include <string>

#include "core/tensor.h"

namespace lockstep {

// Accepts "cpu", "cuda" and "best" (a GPU if one is usable, otherwise the CPU). Throws UsageError
// for another name, and ConfigError with the reason if "cuda" has no usable GPU.
Device device_of(const std::string& name);

// The type of precision.compute = "auto" on this device: bf16 on GPUs of compute capability 8.0 and
// higher and on CPUs with avx512_bf16, else fp32.
DType automatic_precision(const Device& device);

}  // namespace lockstep
