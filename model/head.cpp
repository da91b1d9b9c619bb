#include "model/head.h"

#include <algorithm>

#include "core/integer.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "model/families.h"

namespace lockstep {
namespace {

Linear declare_matrix(ParamStore& params, int unit, const ModelConfig& config,
                      const Embedding& embedding) {
  if (config.tied_head) return Linear(embedding.weight());
  return Linear(params.declare(unit, {.name = model_names(config.family).head + ".weight",
                                      .shape = {config.vocabulary, config.width},
                                      .tensor_dim = 0,
                                      .role = Role::head,
                                      .init = Init::normal,
                                      .init_std = config.init_std,
                                      .stored_rows = stored_vocabulary(config)}));
}

}  // namespace

Head::Head(ParamStore& params, const ModelConfig& config, const Embedding& embedding,
           const Options& options)
    : options_(options),
      vocabulary_(static_cast<int>(config.vocabulary)),
      stored_vocabulary_(stored_vocabulary(config)),
      unit_(params.add_unit("head", config.tied_head ? Keep::own : Keep::ends)),
      norm_(params, unit_, model_names(config.family).final_norm, config),
      matrix_(declare_matrix(params, unit_, config, embedding)) {}

template <class Body>
void Head::for_each_chunk(std::int64_t N, DType logits_dtype, Body&& body) const {
  constexpr std::int64_t kRows = 64;  // whole tiles of the matrix product
  const auto row_bytes = stored_vocabulary_ * bytes_per_element(logits_dtype);
  const auto most = std::max(options_.logits_bytes / row_bytes / kRows * kRows, kRows);
  const auto chunks = std::max<std::int64_t>(divide_up(N, most), 1);
  const auto rows = round_up(divide_up(N, chunks), kRows);  // evenly, at most `most`
  for (std::int64_t first = 0; first < N; first += rows)
    body(first, std::min(rows, N - first));
}

void Head::loss_and_gradient(const StepContext& step, const Gradient& gradient, ConstTensor x,
                             const Targets& targets) const {
  const Arena::Scope scope(step.scratch);
  const auto N = x.shape[0];
  const auto norm_use = step.params.use(unit_, step.compute);
  const auto matrix_use = step.params.use(matrix_.unit(), step.compute);
  step.params.begin_gradients(unit_, step.compute);
  step.params.begin_gradients(matrix_.unit(), step.compute);
  const auto y = step.scratch.allocate("head_norm", x.dtype, x.shape);
  const auto stats = step.scratch.allocate("head_stats", DType::fp32, norm_.stats_shape(N));
  const auto losses = step.scratch.allocate("losses", DType::fp32, {N});

  norm_.forward(step, norm_use, y, stats, x);
  for_each_chunk(N, x.dtype, [&](std::int64_t first, std::int64_t rows) {
    const Arena::Scope chunk(step.scratch);
    const auto y_chunk = y.rows(first, rows);
    const auto logits = step.scratch.allocate("logits", x.dtype, {rows, stored_vocabulary_});
    matrix_.forward(step, matrix_use, logits, y_chunk);
    {
      const Trace::Span span(step.trace, Phase::memory_bound, step.compute);
      cross_entropy_gradient(step.compute, logits,
                             {.losses = losses.rows(first, rows),
                              .targets = targets.ids.rows(first, rows),
                              .vocabulary = vocabulary_,
                              .gradient_scale = targets.gradient_scale,
                              .z_loss = options_.z_loss});
    }
    // The logits are their own gradient now, and y's chunk becomes its own after its last use.
    matrix_.backward(step, matrix_use, y_chunk, logits, y_chunk);
  });
  {
    const Trace::Span span(step.trace, Phase::memory_bound, step.compute);
    sum_losses(step.compute, targets.loss_sum, targets.valid_tokens, losses, targets.ids);
    fill(step.compute, gradient.values, 0.0f);  // nothing arrives past the last norm
  }
  norm_.backward(step, norm_use, gradient, y, x, stats);
}

void Head::loss(const StepContext& step, ConstTensor x, const Targets& targets) const {
  const Arena::Scope scope(step.scratch);
  const auto N = x.shape[0];
  const auto losses = step.scratch.allocate("losses", DType::fp32, {N});
  for_each_chunk(N, DType::fp32, [&](std::int64_t first, std::int64_t rows) {
    const Arena::Scope chunk(step.scratch);
    const auto chunk_logits =
        step.scratch.allocate("logits", DType::fp32, {rows, stored_vocabulary_});
    logits(step, chunk_logits, x.rows(first, rows));
    const Trace::Span span(step.trace, Phase::memory_bound, step.compute);
    cross_entropy_loss(step.compute, chunk_logits,
                       {.losses = losses.rows(first, rows),
                        .targets = targets.ids.rows(first, rows),
                        .vocabulary = vocabulary_});
  });
  const Trace::Span span(step.trace, Phase::memory_bound, step.compute);
  sum_losses(step.compute, targets.loss_sum, targets.valid_tokens, losses, targets.ids);
}

void Head::logits(const StepContext& step, Tensor logits, ConstTensor x) const {
  const Arena::Scope scope(step.scratch);
  const auto y = step.scratch.allocate("head_norm", x.dtype, x.shape);
  const auto stats =
      step.scratch.allocate("head_stats", DType::fp32, norm_.stats_shape(x.shape[0]));
  norm_.forward(step, step.params.use(unit_, step.compute), y, stats, x);
  matrix_.forward(step, step.params.use(matrix_.unit(), step.compute), logits, y);
}

}  // namespace lockstep
