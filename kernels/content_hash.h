// A content hash is a number that shows whether two copies of a tensor have the same bits.
#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// HashPlace describes which elements of a whole tensor a piece holds. Element i of the piece is
// element
//   e = first + j / columns * stride + j % columns,  j = first_index + i,
// of the tensor `purpose` (ParamLayout::indices).
struct HashPlace {
  std::uint64_t purpose = 0;
  std::int64_t first_index = 0, first = 0, columns = 1, stride = 1;
};

// Adds to hash, modulo 2^64, the sum over the elements of x of
//   mix64((purpose + e) kGolden64 ^ bits of the element)      (core/mix.h)
// The sum has no order, so it depends neither on how a tensor is cut into pieces nor on the
// threads. mix64 is a bijection, so one differing element is always detected. Several are missed
// once in 2^64. The hash detects accidents, not attacks.
//   hash [2] int32: the low half, the high half       x fp32 or bf16
void add_content_hash(Stream& stream, Tensor hash, ConstTensor x, const HashPlace& place);

LOCKSTEP_KERNELS(  // arguments are already checked
    void add_content_hash(Stream& stream, Tensor hash, ConstTensor x, const HashPlace& place);)

}  // namespace lockstep
