#include "model/head.h"

#include <algorithm>

#include "core/integer.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/pieces.h"
#include "model/families.h"
#include "model/sequence.h"

namespace lockstep {
namespace {

Linear declare_matrix(ParamStore& params, int unit, const ModelConfig& config,
                      const Embedding& embedding, std::int64_t stored) {
  if (config.tied_head) return Linear(embedding.weight());
  return Linear(params.declare(unit, {.name = model_names(config.family).head + ".weight",
                                      .shape = {config.vocabulary, config.width},
                                      .tensor_dim = 0,
                                      .role = Role::head,
                                      .init = Init::normal,
                                      .init_std = config.init_std,
                                      .stored_rows = stored,
                                      .grad_is_set = true}));
}

}  // namespace

Head::Head(ParamStore& params, const ModelConfig& config, const Embedding& embedding,
           const Options& options)
    : options_(options),
      vocabulary_(static_cast<int>(config.vocabulary)),
      tensor_ranks_(params.comms().tensor->size()),
      columns_(lockstep::stored_vocabulary(config, tensor_ranks_) / tensor_ranks_),
      unit_(params.add_unit("head", config.tied_head ? Keep::own : Keep::ends)),
      norm_(params, unit_, model_names(config.family).final_norm, config),
      matrix_(declare_matrix(params, unit_, config, embedding, stored_vocabulary())) {}

std::int64_t Head::chunk_rows(std::int64_t N, DType logits_dtype) const {
  constexpr std::int64_t kRows = 64;  // whole tiles of the matmul
  const auto row_bytes = columns_ * bytes_per_element(logits_dtype);
  const auto most = std::max(options_.logits_bytes / row_bytes / kRows * kRows, kRows);
  const auto chunks = std::max<std::int64_t>(divide_up(N, most), 1);
  return round_up(divide_up(N, chunks), kRows);  // equal chunks of at most `most` rows
}

std::int64_t Head::chunks(std::int64_t N, DType logits_dtype) const {
  return divide_up(N, chunk_rows(N, logits_dtype));
}

Tensor Head::allocate_logits(const StepContext& step, DType dtype, std::int64_t rows) const {
  const Arena::For use(step.scratch, Purpose::logits);
  return step.scratch.allocate("logits", dtype, {rows, columns_});
}

template <class Body>
void Head::for_each_chunk(std::int64_t N, DType logits_dtype, Body&& body) const {
  const auto rows = chunk_rows(N, logits_dtype);
  for (std::int64_t first = 0; first < N; first += rows)
    body(first, std::min(rows, N - first));
}

CrossEntropy Head::cross_entropy(const StepContext& step, ConstTensor logits, Tensor losses,
                                 ConstTensor targets) const {
  CrossEntropy args{.losses = losses, .targets = targets, .vocabulary = vocabulary_};
  Communicator& tensor = *step.comms.tensor;
  if (tensor.size() == 1) return args;
  args.first_column = static_cast<int>(tensor.rank() * columns_);
  const auto n = logits.shape[0];
  const auto mine = step.scratch.allocate("cross_entropy_part", DType::fp32, {n, 3});
  cross_entropy_parts(step.compute, mine, logits, args);
  args.parts = gather(step, mine).view({tensor.size(), n, 3});
  return args;
}

void Head::loss_and_gradient(const StepContext& step, const Gradient& gradient, ConstTensor x,
                             const Targets& targets) const {
  const Arena::Scope scope(step.scratch);
  const auto N = targets.ids.elements();
  const auto norm_use = step.params.use(unit_, step.compute);
  const auto matrix_use = step.params.use(matrix_.unit(), step.compute);
  step.params.begin_gradients(unit_, step.compute);
  step.params.begin_gradients(matrix_.unit(), step.compute);
  const auto y = step.scratch.allocate("head_norm", x.dtype, x.shape);
  const auto stats =
      step.scratch.allocate("head_stats", DType::fp32, norm_.stats_shape(x.shape[0]));
  const auto losses = step.scratch.allocate("losses", DType::fp32, {N});

  norm_.forward(step, norm_use, y, stats, x);
  const auto all = SequenceGather(step, y).wait();
  const SequenceSum sum(step, y);  // y is overwritten by its gradient
  for_each_chunk(N, x.dtype, [&](std::int64_t first, std::int64_t rows) {
    const Arena::Scope chunk(step.scratch);
    const auto logits = allocate_logits(step, x.dtype, rows);
    matrix_.forward(step, matrix_use, logits, all.rows(first, rows));
    auto args =
        cross_entropy(step, logits, losses.rows(first, rows), targets.ids.rows(first, rows));
    args.gradient_scale = targets.gradient_scale;
    args.z_loss = options_.z_loss;
    cross_entropy_gradient(step.compute, logits, args);
    // The logits now hold their own gradient. With one rank, the gradient of y overwrites the chunk
    // of y after its last use.
    matrix_.backward(step, matrix_use, sum.partial().rows(first, rows), logits,
                     all.rows(first, rows));
  });
  sum.start().wait();
  sum_losses(step.compute, targets.loss_sum, targets.valid_tokens, losses, targets.ids);
  fill(step.compute, gradient.values, 0.0f);  // no gradient bypasses the last norm
  norm_.backward(step, norm_use, gradient, y, x, stats);
}

void Head::loss(const StepContext& step, ConstTensor x, const Targets& targets) const {
  const Arena::Scope scope(step.scratch);
  const auto each = step.scratch.allocate("losses", DType::fp32, {targets.ids.elements()});
  losses(step, each, x, targets.ids);
  sum_losses(step.compute, targets.loss_sum, targets.valid_tokens, each, targets.ids);
}

void Head::losses(const StepContext& step, Tensor losses, ConstTensor x,
                  ConstTensor targets) const {
  const Arena::Scope scope(step.scratch);
  const auto all = SequenceGather(step, x).wait();
  for_each_chunk(targets.elements(), DType::fp32, [&](std::int64_t first, std::int64_t rows) {
    const Arena::Scope chunk(step.scratch);
    const auto logits = allocate_logits(step, DType::fp32, rows);
    my_logits(step, logits, all.rows(first, rows));
    const auto args =
        cross_entropy(step, logits, losses.rows(first, rows), targets.rows(first, rows));
    cross_entropy_loss(step.compute, logits, args);
  });
}

void Head::logits(const StepContext& step, Tensor logits, ConstTensor x) const {
  if (tensor_ranks_ == 1) return my_logits(step, logits, x);
  const Arena::Scope scope(step.scratch);
  const auto n = x.shape[0];
  const auto mine = step.scratch.allocate("my_logits", DType::fp32, {n, columns_});
  my_logits(step, mine, x);
  const auto all = gather(step, mine);
  pack_pieces(step.compute, logits.view({n, tensor_ranks_, columns_}),
              all.view({tensor_ranks_, n, columns_}), 0);
}

void Head::my_logits(const StepContext& step, Tensor logits, ConstTensor x) const {
  const Arena::Scope scope(step.scratch);
  const auto y = step.scratch.allocate("head_norm", x.dtype, x.shape);
  const auto stats =
      step.scratch.allocate("head_stats", DType::fp32, norm_.stats_shape(x.shape[0]));
  norm_.forward(step, step.params.use(unit_, step.compute), y, stats, x);
  matrix_.forward(step, step.params.use(matrix_.unit(), step.compute), logits, y);
}

}  // namespace lockstep
