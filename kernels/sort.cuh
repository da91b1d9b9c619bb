// sort_keys sorts int32 keys on a GPU. It is stable, so that sums over equal keys have one order.
#pragma once

#include "core/arena.h"
#include "core/stream.h"

namespace lockstep {

struct SortedKeys {
  Tensor keys;   // [N] int32, ascending
  Tensor order;  // [N] int32: keys[i] was input order[i]; ascending among equal keys
};

// Sorts keys [N] int32 in [0, bound), with N below 2^31. The result and temporary memory are
// allocated from `scratch`.
SortedKeys sort_keys(Stream& stream, Arena& scratch, ConstTensor keys, std::int64_t bound);

}  // namespace lockstep
