#include "train/optimizer.h"

#include "core/philox.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace lockstep {

void Optimizer::allocate(Arena& arena, Stream& stream) {
  const auto zeros = [&](const char* name, DType dtype, const Shape& shape) {
    const Tensor t = arena.allocate(name, dtype, shape);
    fill(stream, t, 0.0f);
    return t;
  };
  for (const ParamShard& shard : params_.shards()) {
    moments_.push_back({zeros("adamw_m", config_.moments, shard.weight.shape),
                        zeros("adamw_v", config_.moments, shard.weight.shape)});
    grads_.push_back(shard.grad);
    for (const Segment& segment : shard.segments)
      runs_.push_back(run_of(shard, moments_.back(), segment));
  }
  updates_ = zeros("adamw_updates", DType::int32, {1});
  control_ = zeros("adamw_control", DType::fp32, {5});
  squares_ = zeros("gradient_squares", DType::fp32, {1});
}

AdamWRun Optimizer::run_of(const ParamShard& shard, const Moments& moments,
                           const Segment& segment) const {
  const ParamSpec& spec = params_.spec(segment.id);
  const auto part = [&](Tensor t) {
    return t ? t.rows(segment.shard_begin, segment.count) : Tensor{};
  };
  return {.weight = part(shard.weight),
          .master = part(shard.master),
          .m = part(moments.m),
          .v = part(moments.v),
          .grad = part(shard.grad),
          .decay = spec.role != Role::vector,
          .purpose = purpose_of(spec.name),
          .first_index = segment.logical_begin};
}

void Optimizer::step(Stream& stream, Arena& scratch, const Step& step) {
  fill(stream, squares_, 0.0f);
  sum_of_squares(stream, scratch, squares_, grads_);
  const AdamWScalars scalars{step.learning_rate, step.step, updates_, control_};
  adamw_control(stream, scalars, {squares_, step.loss_sum, step.valid_tokens}, config_.adamw);
  adamw_update(stream, runs_, scalars, config_.adamw);
  params_.quantize_weights(stream);
}

}  // namespace lockstep
