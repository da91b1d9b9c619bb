// Inference holds a trained model without its optimizer, for generation and evaluation. One rank or
// several ranks share the model.
#pragma once

#include <cstdint>
#include <utility>

#include "data/batch.h"
#include "model/transformer.h"
#include "train/layout.h"
#include "train/step/device_batch.h"

namespace lockstep {

class Inference {
 public:
  struct Config {
    ModelConfig model;
    DType compute = DType::fp32;
    std::int64_t sequences = 0, sequence_length = 0;  // of an evaluation micro-batch; 0: none
  };

  // Allocates weights of zero: fill them through params(), then refresh_weights(). `comms`: of the
  // ranks that share the model; each holds a part of the weights along the shard axis.
  Inference(const Config& config, Stream& compute, Arenas& arenas, Comms comms = make_comms());

  // Context with positions and document_start of a device batch; without them for generation.
  StepContext context(const Batch& batch = {});
  Batch on_device(const Batch& batch) { return batch_.copy(compute_, batch); }

  Stream& compute() { return compute_; }
  Arenas& arenas() { return arenas_; }
  Comms& comms() { return comms_; }
  DataPlace place() const { return data_place(comms_.mesh, comms_.world->rank()); }
  ParamStore& params() { return params_; }
  Transformer& transformer() { return transformer_; }

 private:
  Stream& compute_;
  Arenas& arenas_;
  Comms comms_;
  ParamStore params_;
  Transformer transformer_;
  DeviceBatch batch_;
};

// The ranks that share a model.
struct ModelRanks {
  World& world;
  Mesh mesh = {};
  const Topology* topology = nullptr;

  Comms comms() const { return make_comms(world, mesh, topology); }
};

// Peak bytes of rank `rank` of a mesh in `work`, which gets an Inference on a measuring stream.
Arenas::Bytes measure_inference(const Inference::Config& config, const Mesh& mesh, int rank,
                                const Stream& compute, FunctionRef<void(Inference& model)> work);

}  // namespace lockstep
