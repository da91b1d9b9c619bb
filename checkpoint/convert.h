// Conversion between the floating-point types of files and tensors, on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace lockstep {

// Converts `count` elements between fp32 and bf16, rounding to nearest even. Ranges do not overlap.
void convert_elements(const std::byte* from, DType from_type, std::byte* to, DType to_type,
                      std::int64_t count);

}  // namespace lockstep
