#include "train/loss_sum.h"

#include <algorithm>
#include <limits>

#include "kernels/elementwise.h"

namespace lockstep {

double LossSum::mean() const {
  return tokens > 0 ? loss / static_cast<double>(tokens) : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t most_windows(std::int64_t tokens, std::int64_t sequence_length) {
  return tokens > 0 ? std::max<std::int64_t>(tokens / sequence_length, 1) : 0;
}

LossSum evaluate_batch(Transformer& model, const StepContext& step, const Batch& batch,
                       const Mirror& loss, const Mirror& tokens) {
  fill(step.compute, loss.device(), 0.0f);
  fill(step.compute, tokens.device(), 0.0f);
  const auto n = batch.inputs.elements();
  model.evaluate(
      step, batch.inputs.view({n}),
      {.ids = batch.targets.view({n}), .loss_sum = loss.device(), .valid_tokens = tokens.device()});
  loss.fetch(step.compute);
  tokens.fetch(step.compute);
  step.compute.synchronize();
  if (step.compute.is_measuring()) return {};
  return {*loss.host().as<float>(), *tokens.host().as<std::int32_t>()};
}

std::optional<LossSum> evaluate_all(Loader& loader, Stream& compute,
                                    FunctionRef<LossSum(const Batch& batch)> evaluate,
                                    FunctionRef<bool()> stop) {
  LossSum sum;
  for (std::int64_t first = 0; first < loader.samples();) {
    if (stop()) return std::nullopt;
    const Batch batch = loader.batch(first, 0);
    const LossSum part = evaluate(batch);
    first += batch.inputs.shape[0];
    loader.release(batch, compute.record());
    sum.loss += part.loss;
    sum.tokens += part.tokens;
  }
  return sum;
}

}  // namespace lockstep
