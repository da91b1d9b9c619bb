#pragma once

#include "core/tensor.h"

namespace lockstep::testing {

// The types of a parameter and its optimizer state.
struct AdamWMode {
  const char* name;
  DType weight;
  bool master;
  DType moments;
};
constexpr AdamWMode kAdamWModes[] = {
    {"fp32", DType::fp32, false, DType::fp32},
    {"bf16_with_master", DType::bf16, true, DType::fp32},
    {"fp32_with_bf16_moments", DType::fp32, false, DType::bf16},
    {"fp32_with_master", DType::fp32, true, DType::fp32},
    {"bf16_with_master_and_bf16_moments", DType::bf16, true, DType::bf16},
    {"bf16_stochastic", DType::bf16, false, DType::fp32},
    {"bf16_stochastic_and_bf16_moments", DType::bf16, false, DType::bf16},
};

}  // namespace lockstep::testing
