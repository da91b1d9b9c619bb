// Inference: a trained model without its optimizer, to generate from and to evaluate.
#pragma once

#include <cstdint>

#include "core/trace.h"
#include "data/loader.h"
#include "model/transformer.h"

namespace lockstep {

class Inference {
 public:
  struct Config {
    ModelConfig model;
    DType compute = DType::fp32;
    std::int64_t sequences = 0, sequence_length = 0;  // of a micro-batch to evaluate; 0: none
  };

  // Allocates weights, all zero: fill them through params(), then refresh_weights().
  Inference(const Config& config, Stream& compute, Arena& arena);

  // With positions and document_start of a batch, or absent ones to generate.
  StepContext context(const Batch& batch = {});

  ParamStore& params() { return params_; }
  Transformer& transformer() { return transformer_; }

 private:
  Stream& compute_;
  Arena& arena_;
  Trace trace_;
  Comms comms_;
  ParamStore params_;
  Transformer transformer_;
};

}  // namespace lockstep
