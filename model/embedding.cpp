#include "model/embedding.h"

#include <algorithm>
#include <numeric>

#include "core/integer.h"
#include "model/families.h"
#include "model/sequence.h"

namespace lockstep {

std::int64_t stored_vocabulary(const ModelConfig& config, std::int64_t tensor_ranks) {
  const std::int64_t multiple = config.vocabulary >= 4096 ? 128 : 16;
  return round_up(config.vocabulary, std::lcm(multiple, 16 * tensor_ranks));
}

Embedding::Embedding(ParamStore& params, const ModelConfig& config)
    : stored_vocabulary_(stored_vocabulary(config, params.comms().tensor->size())) {
  // A tied head uses the unit too.
  const int unit = params.add_unit("embedding", config.tied_head ? Keep::own : Keep::ends);
  const auto names = model_names(config.family);
  tokens_ = params.declare(unit, {.name = names.embedding + ".weight",
                                  .shape = {config.vocabulary, config.width},
                                  .tensor_dim = 0,
                                  .role = Role::embedding,
                                  .init = Init::normal,
                                  .init_std = config.init_std,
                                  .stored_rows = stored_vocabulary_});
  if (config.learned_positions)
    positions_ = params.declare(unit, {.name = names.positions + ".weight",
                                       .shape = {config.max_positions, config.width},
                                       .role = Role::embedding,
                                       .init = Init::normal,
                                       .init_std = config.init_std});
}

// Each tensor rank looks up its rows of the table, and adds the positions of 1/t of the tokens.
EmbeddingPart Embedding::part(const StepContext& step) const {
  const Communicator& tensor = *step.comms.tensor;
  const auto n = step.stream_tokens(), first = std::min(tensor.rank() * n, step.tokens());
  return {.first_id = tensor.rank() * (stored_vocabulary_ / tensor.size()),
          .table_rows = stored_vocabulary_,
          .position_begin = first,
          .position_end = std::min(first + n, step.tokens())};
}

void Embedding::forward(const StepContext& step, Tensor y, ConstTensor ids) const {
  const Arena::Scope scope(step.scratch);
  const auto use = step.params.use(unit(), step.compute);
  const SequenceSum sum(step, y);
  embedding_forward(step.compute, {.y = sum.partial(),
                                   .ids = ids,
                                   .weight = use[tokens_],
                                   .positions = step.positions.view({step.tokens()}),
                                   .position_weight = positions_ ? use[*positions_] : ConstTensor{},
                                   .part = part(step)});
  sum.start().wait();
}

void Embedding::backward(const StepContext& step, ConstTensor dy, ConstTensor ids) const {
  const Arena::Scope scope(step.scratch);
  step.params.begin_gradients(unit(), step.compute);
  const auto all = SequenceGather(step, dy).wait();
  embedding_backward(step.compute, step.scratch,
                     {.dweight = step.params.grad(tokens_),
                      .dposition_weight = positions_ ? step.params.grad(*positions_) : Tensor{},
                      .dy = all,
                      .ids = ids,
                      .positions = step.positions.view({step.tokens()}),
                      .part = part(step)});
}

}  // namespace lockstep
