// Content hash: a number that says whether two copies of a tensor are the same bits.
#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// Which elements of a whole tensor a piece holds, and whose: element i of the piece is element
//   e = first + j / columns * stride + j % columns,  j = first_index + i,
// of the tensor `purpose` (ParamLayout::indices).
struct HashPlace {
  std::uint64_t purpose = 0;
  std::int64_t first_index = 0, first = 0, columns = 1, stride = 1;
};

// hash += the sum over the elements of x, modulo 2^64, of
//   mix64((purpose + e) kGolden64 ^ bits of the element)      (core/mix.h)
// A sum has no order: the pieces of a tensor add up to the same however it is cut, and whatever the
// threads. mix64 is a bijection, so one element that differs always shows, and several but once in
// 2^64. It finds accidents, not attackers.
//   hash [2] int32: the low half, the high half       x fp32 or bf16
void add_content_hash(Stream& stream, Tensor hash, ConstTensor x, const HashPlace& place);

LOCKSTEP_KERNELS(  // arguments are already checked
    void add_content_hash(Stream& stream, Tensor hash, ConstTensor x, const HashPlace& place);)

}  // namespace lockstep
