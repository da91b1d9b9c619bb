// StepContext holds what every part of the model needs from its micro-batch. The training loop
// makes it and passes it by reference.
#pragma once

#include "core/integer.h"
#include "dist/param_store.h"
#include "model/token_chunks.h"

namespace lockstep {

// d(loss)/dx of the residual stream.
struct Gradient {
  Tensor values;  // [N/t, D]
  Tensor absmax;  // [1] fp32: max |values|, if fp8 matmuls read it, else absent
};

struct StepContext {
  Stream& compute;
  Arena& scratch;  // of the compute stream: memory taken from it is released on return
  ParamStore& params;
  Comms& comms;
  ConstTensor positions;         // [B, T] int32, within the document
  ConstTensor document_start;    // [B, T] int32, the first token of its sequence that a token may
                                 // attend to; absent: the first token of the sequence
  ConstTensor rope_table;        // [P, K] fp32; Transformer sets it
  bool cudnn_attention = false;  // use cuDNN; only without document_start
  Fp8Matmuls fp8 = Fp8Matmuls::off;  // for the layers' matmuls: off, or the mode of `params`
  std::int64_t tensor_chunks = 1;    // see chunks()

  std::int64_t tokens() const { return positions.elements(); }  // N = B T

  // Rows of the residual stream on this rank, N/t rounded up. Between matmuls the t tensor ranks
  // share the sequence, and the last of them may have rows of padding at the end.
  std::int64_t stream_tokens() const { return divide_up(tokens(), comms.tensor->size()); }

  // Number of chunks of the tokens. Each has its own collectives over tensor ranks, which run
  // beside the matmuls of other chunks (model/sequence.h).
  std::int64_t chunks() const {
    return token_chunks(tokens(), comms.tensor->size(), tensor_chunks, fp8);
  }
};

}  // namespace lockstep
