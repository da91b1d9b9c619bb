// Support of fp8 matmuls (GEMMs): the GPUs, and the matrix sizes, which must be multiples of a
// number (kernels/quantize.h).
#pragma once

#include "train/config.h"

namespace lockstep {

// Throws ConfigError if a GPU of this compute capability (89: 8.9) has no such matmuls.
void require_fp8(Fp8Matmuls fp8, int capability, const std::string& gpu);

// Whether the matrices of each rank have supported sizes, with this number of tensor ranks.
bool has_fp8_matmuls(const ModelConfig& model, Fp8Matmuls fp8, std::int64_t tensor_ranks);

// Whether a micro-batch of this number of sequences has a supported number of tokens.
bool has_fp8_matmuls(const Config& config, std::int64_t sequences);

}  // namespace lockstep
