#include "checkpoint/convert.h"

#include <algorithm>

#include "core/error.h"

namespace lockstep {

void convert_elements(const std::byte* from, DType from_type, std::byte* to, DType to_type,
                      std::int64_t count) {
  if (from_type == to_type) {
    std::copy_n(from, count * bytes_per_element(from_type), to);
  } else if (from_type == DType::bf16 && to_type == DType::fp32) {
    const auto* in = reinterpret_cast<const BFloat16*>(from);
    auto* out = reinterpret_cast<float*>(to);
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = to_float(in[i]);
  } else if (from_type == DType::fp32 && to_type == DType::bf16) {
    const auto* in = reinterpret_cast<const float*>(from);
    auto* out = reinterpret_cast<BFloat16*>(to);
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = to_bf16(in[i]);
  } else {
    LOCKSTEP_FAIL("no conversion from ", name(from_type), " to ", name(to_type));
  }
}

}  // namespace lockstep
