#pragma once

#include "core/tensor.h"

namespace lockstep {

// B sequences of T tokens; all tensors are [B, T] int32 in pinned memory. Masked sequences and
// padding have targets of -1 and inputs of 0. document_start is absent without
// Loader::document_mask().
struct Batch {
  ConstTensor inputs;
  ConstTensor targets;         // inputs shifted by one; -1 if masked or if the loss mask is 0
  ConstTensor positions;       // position within the part of the document that is in the window
  ConstTensor document_start;  // index in the sequence of the first token of the document
  int buffer = 0;
};

}  // namespace lockstep
