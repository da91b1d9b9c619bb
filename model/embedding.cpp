#include "model/embedding.h"

#include "kernels/embedding.h"
#include "model/families.h"

namespace lockstep {

std::int64_t stored_vocabulary(const ModelConfig& config) {
  const std::int64_t multiple = config.vocabulary >= 4096 ? 128 : 16;
  return (config.vocabulary + multiple - 1) / multiple * multiple;
}

Embedding::Embedding(ParamStore& params, const ModelConfig& config) {
  // A head that is tied uses the unit too.
  const int unit = params.add_unit("embedding", config.tied_head ? Keep::own : Keep::ends);
  const auto names = model_names(config.family);
  tokens_ = params.declare(unit, {.name = names.embedding + ".weight",
                                  .shape = {config.vocabulary, config.width},
                                  .tensor_dim = 0,
                                  .role = Role::embedding,
                                  .init = Init::normal,
                                  .init_std = config.init_std,
                                  .stored_rows = stored_vocabulary(config)});
  if (config.learned_positions)
    positions_ = params.declare(unit, {.name = names.positions + ".weight",
                                       .shape = {config.max_positions, config.width},
                                       .role = Role::embedding,
                                       .init = Init::normal,
                                       .init_std = config.init_std});
}

void Embedding::forward(const StepContext& step, Tensor y, ConstTensor ids) const {
  const Trace::Span span(step.trace, Phase::memory_bound, step.compute);
  const auto use = step.params.use(unit(), step.compute);
  embedding_forward(step.compute,
                    {.y = y,
                     .ids = ids,
                     .weight = use[tokens_],
                     .positions = step.positions.view({step.tokens()}),
                     .position_weight = positions_ ? use[*positions_] : ConstTensor{}});
}

void Embedding::backward(const StepContext& step, ConstTensor dy, ConstTensor ids) const {
  step.params.begin_gradients(unit(), step.compute);
  const Trace::Span span(step.trace, Phase::memory_bound, step.compute);
  embedding_backward(step.compute, step.scratch,
                     {.dweight = step.params.grad(tokens_),
                      .dposition_weight = positions_ ? step.params.grad(*positions_) : Tensor{},
                      .dy = dy,
                      .ids = ids,
                      .positions = step.positions.view({step.tokens()})});
}

}  // namespace lockstep
