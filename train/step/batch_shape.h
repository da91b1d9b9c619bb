// BatchShape: a batch with shapes and no memory, for code that only measures or allocates. It has
// no documents, because they take no more memory.
#pragma once

#include "data/batch.h"

namespace lockstep {

inline Batch batch_shape(std::int64_t sequences, std::int64_t sequence_length) {
  ConstTensor ids;
  ids.shape = {sequences, sequence_length};
  ids.dtype = DType::int32;
  return {.inputs = ids, .targets = ids, .positions = ids, .document_start = {}};
}

}  // namespace lockstep
