// Where fp8 has products: on which GPUs, and of which sizes (multiples of some number,
// kernels/quantize.h).
#pragma once

#include "train/config.h"

namespace lockstep {

// Throws ConfigError where a GPU of such a compute capability (89: 8.9) has none.
void require_fp8(Fp8Products fp8, int capability, const std::string& gpu);

// Whether each of so many tensor ranks has such matrices.
bool has_fp8_products(const ModelConfig& model, Fp8Products fp8, std::int64_t tensor_ranks);

// Whether micro-batches of so many sequences have such numbers of tokens.
bool has_fp8_products(const Config& config, std::int64_t sequences);

}  // namespace lockstep
