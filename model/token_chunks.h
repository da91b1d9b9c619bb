// The tokens of a micro-batch are split in chunks that tensor ranks gather and sum one by one
// (model/sequence.h).
#pragma once

#include <cstdint>
#include <numeric>

#include "dist/fp8_weights.h"
#include "kernels/quantize.h"

namespace lockstep {

// Returns what must divide the tokens if t ranks split them in k chunks. Each rank has the same
// part of each chunk. In fp8 the rows of a chunk must also suit the matmuls.
inline std::int64_t chunk_multiple(std::int64_t t, std::int64_t k, Fp8Matmuls fp8) {
  return k * (fp8 == Fp8Matmuls::off ? t : std::lcm(t, size_multiple(weight_scaling(fp8))));
}

// Number of chunks of `tokens`: k, or 1 with one rank or if they cannot be split so.
inline std::int64_t token_chunks(std::int64_t tokens, std::int64_t t, std::int64_t k,
                                 Fp8Matmuls fp8) {
  return t > 1 && tokens % chunk_multiple(t, k, fp8) == 0 ? k : 1;
}

}  // namespace lockstep
