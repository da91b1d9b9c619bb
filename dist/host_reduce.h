// Reductions that CPU communicators compute themselves.
#pragma once

#include <vector>

#include "dist/communicator.h"

namespace lockstep {

// Elements [begin, end) of inout = the sum, or maximum, of the same elements of `all`, in order.
// `all` holds tensors like inout, which may be one of them. bf16 is added in fp32 and rounded once.
void reduce_range(Tensor inout, ReduceOp op, const std::vector<const std::byte*>& all,
                  std::int64_t begin, std::int64_t end);
// out = the sum of `pieces`, one tensor like `out` from each rank, in the order and with the
// rounding of NCCL's ring for `rank`: the next rank's first, its own last, rounded after each
// addition.
void ring_sum(Tensor out, const std::vector<const std::byte*>& pieces, int rank);

}  // namespace lockstep
