// StepContext: what every part of the model needs from the micro-batch it runs in. Made by the
// training loop, handed down by reference.
#pragma once

#include "core/integer.h"
#include "dist/param_store.h"

namespace lockstep {

// d(loss)/dx of the residual stream.
struct Gradient {
  Tensor values;  // [N/t, D]
  Tensor absmax;  // [1] fp32: max |values|, where products in fp8 read it, else absent
};

struct StepContext {
  Stream& compute;
  Arena& scratch;  // of the compute stream: what is taken from it is gone when the call returns
  ParamStore& params;
  Comms& comms;
  ConstTensor positions;         // [B, T] int32, within the document
  ConstTensor document_start;    // [B, T] int32, the first token of its sequence that a token may
                                 // attend to; absent: from its sequence's first on
  ConstTensor rope_table;        // [P, K] fp32; filled in by Transformer
  bool cudnn_attention = false;  // by cuDNN; only without document_start
  Fp8Products fp8 = Fp8Products::off;  // of the layers' matrices: off, or what `params` has

  std::int64_t tokens() const { return positions.elements(); }  // N = B T

  // Rows of the residual stream here, N/t rounded up: between matrices t tensor ranks share the
  // sequence, and the last of them may have rows of padding behind it.
  std::int64_t stream_tokens() const { return divide_up(tokens(), comms.tensor->size()); }
};

}  // namespace lockstep
