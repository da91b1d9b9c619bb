#include "train/inference.h"

#include "train/batch_shape.h"

namespace lockstep {

Inference::Inference(const Config& config, Stream& compute, Arena& arena)
    : compute_(compute),
      arena_(arena),
      comms_(make_comms(Mesh{})),
      params_(Mesh{}, comms_, {.compute_dtype = config.compute, .stochastic_rounding = true}),
      transformer_(params_, config.model, {}) {
  params_.allocate_weights(arena, compute);
  if (config.sequences == 0) return;
  transformer_.allocate(arena, context(batch_shape(config.sequences, config.sequence_length)), 0);
}

StepContext Inference::context(const Batch& batch) {
  return {.compute = compute_,
          .scratch = arena_,
          .params = params_,
          .comms = comms_,
          .trace = trace_,
          .positions = batch.positions,
          .document_start = batch.document_start,
          .rope_table = {}};
}

}  // namespace lockstep
