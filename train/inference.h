// Inference: a trained model without its optimizer, to generate from and to evaluate.
#pragma once

#include <cstdint>

#include "core/trace.h"
#include "data/loader.h"
#include "model/transformer.h"
#include "train/device_batch.h"

namespace lockstep {

class Inference {
 public:
  struct Config {
    ModelConfig model;
    DType compute = DType::fp32;
    std::int64_t sequences = 0, sequence_length = 0;  // of a micro-batch to evaluate; 0: none
  };

  // Allocates weights, all zero: fill them through params(), then refresh_weights().
  Inference(const Config& config, Stream& compute, Arenas& arenas);

  // With positions and document_start of a batch on the device, or absent ones to generate.
  StepContext context(const Batch& batch = {});
  Batch on_device(const Batch& batch) { return batch_.copy(compute_, batch); }

  ParamStore& params() { return params_; }
  Transformer& transformer() { return transformer_; }

 private:
  Stream& compute_;
  Arenas& arenas_;
  Trace trace_;
  Comms comms_;
  ParamStore params_;
  Transformer transformer_;
  DeviceBatch batch_;
};

}  // namespace lockstep
