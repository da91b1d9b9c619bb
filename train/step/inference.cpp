#include "train/step/inference.h"

#include "train/step/batch_shape.h"

namespace lockstep {

Inference::Inference(const Config& config, Stream& compute, Arenas& arenas, Comms comms)
    : compute_(compute),
      arenas_(arenas),
      comms_(std::move(comms)),
      params_(comms_, {.compute_dtype = config.compute, .stochastic_rounding = true}),
      transformer_(params_, config.model, {}) {
  params_.allocate_weights(arenas.device, compute);
  if (config.sequences == 0) return;
  batch_ = DeviceBatch(config.sequences, config.sequence_length, arenas.device);
  transformer_.allocate(arenas.device,
                        context(batch_shape(config.sequences, config.sequence_length)), 0);
}

StepContext Inference::context(const Batch& batch) {
  return {.compute = compute_,
          .scratch = arenas_.device,
          .params = params_,
          .comms = comms_,
          .positions = batch.positions,
          .document_start = batch.document_start,
          .rope_table = {}};
}

Arenas::Bytes measure_inference(const Inference::Config& config, const Mesh& mesh, int rank,
                                const Stream& compute, FunctionRef<void(Inference& model)> work) {
  Stream stream(compute.device(), "measure", Stream::Mode::measuring, compute.threads());
  Arenas arenas = Arenas::measure(compute.device());
  LoneWorld one_of_all(rank, mesh.world());
  Inference model(config, stream, arenas, make_comms(one_of_all, mesh));
  work(model);
  return arenas.peak();
}

}  // namespace lockstep
