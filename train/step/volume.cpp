#include "train/step/volume.h"

#include "data/loader.h"
#include "model/token_chunks.h"
#include "train/layout.h"

namespace lockstep {

StepShape step_shape(Training& training) {
  const TrainingConfig& config = training.config();
  const Comms& comms = training.params().comms();
  const ParamLayout& layout = training.params().layout();
  const auto B = config.micro_batch_sequences, tokens = B * config.sequence_length;
  const Tensor scales = training.params().weight_absmax();
  StepShape shape{
      .mesh = comms.mesh,
      .rank = comms.world->rank(),
      .shard_inside = comms.shard.inside->size(),
      .replicate_inside = comms.replicate.inside->size(),
      .sharding = config.sharding,
      .reduce = comms.reduce,
      .type = config.compute,
      .scales = scales ? scales.elements() : 0,
      .units = {},
      .micro_batches = Loader::micro_steps_of(config.global_batch_sequences, B,
                                              data_place(comms.mesh, comms.world->rank()).ranks),
      .tokens = tokens,
      .layers = config.model.layers,
      .width = config.model.width,
      .recomputes_blocks = config.recompute == Recompute::block,
      .tensor_chunks =
          token_chunks(tokens, comms.mesh.size(Axis::tensor), config.tensor_chunks, config.fp8),
      .loss_chunks = training.transformer().loss_chunks(tokens)};
  const auto keeps = training.params().weight_keeps();
  for (int unit = 0; unit < layout.units(); ++unit)
    shape.units.push_back({.elements = layout.elements(unit),
                           .split = layout.split_elements(unit),
                           .keep = keeps[static_cast<std::size_t>(unit)]});
  return shape;
}

}  // namespace lockstep
