// Sums of small tensors that CPU communicators compute themselves.
#pragma once

#include <vector>

#include "dist/communicator.h"

namespace lockstep {

// Elements [begin, end) of inout = the sum, or maximum, of the same elements of `all`, in order.
// `all` holds tensors like inout, which may be one of them. bf16 is added in fp32 and rounded once.
void reduce_range(Tensor inout, ReduceOp op, const std::vector<const std::byte*>& all,
                  std::int64_t begin, std::int64_t end);

}  // namespace lockstep
