// Kernels of one warp; each uses one feature of kernels/ptx.cuh.
#pragma once

#include "core/stream.h"

namespace lockstep::testing {

// d [16, 8] fp32 += a [16, 16] b [16, 8], with b given as it is or transposed [8, 16]; the
// registers are filled with load_matrices.
void multiply_on_gpu(Stream& stream, Tensor d, ConstTensor a, ConstTensor b, bool b_is_transposed);

// to [32, 4] = exp2(from [32, 4]), with from = 0 in the last `missing` rows, rounded to bf16 in
// pairs.
void copy_exp2_on_gpu(Stream& stream, Tensor to, ConstTensor from, int missing);

enum class PtxMistake : unsigned char {
  none,
  no_wait,           // copies are read before they arrive
  no_barrier,        // after the wait
  misaligned_row,    // of a matrix
  lane_stays_away,   // from an mma
  read_before_sync,  // matrices that other lanes wrote
};
// to [64] = from [64], fp32, through shared memory; of two warps.
void copy_with(PtxMistake mistake, Stream& stream, Tensor to, ConstTensor from);

}  // namespace lockstep::testing
