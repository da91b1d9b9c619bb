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
  for (const ParamShard& shard : params_.shards())
    moments_.push_back({zeros("adamw_m", config_.moments, shard.weight.shape),
                        zeros("adamw_v", config_.moments, shard.weight.shape)});
  updates_ = zeros("adamw_updates", DType::int32, {1});
  control_ = zeros("adamw_control", DType::fp32, {5});
  squares_ = zeros("gradient_squares", DType::fp32, {1});
}

void Optimizer::step(Stream& stream, Arena& scratch, const Step& step) {
  fill(stream, squares_, 0.0f);
  for (const ParamShard& shard : params_.shards())
    sum_of_squares(stream, scratch, squares_, shard.grad);
  const AdamWScalars scalars{step.learning_rate, step.step, updates_, control_};
  adamw_control(stream, scalars, {squares_, step.loss_sum, step.valid_tokens}, config_.adamw);

  const auto shards = params_.shards();
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const ParamShard& shard = shards[s];
    for (const Segment& segment : shard.segments) {
      const ParamSpec& spec = params_.spec(segment.id);
      const auto run = [&](Tensor t) {
        return t ? t.rows(segment.shard_begin, segment.count) : Tensor{};
      };
      adamw_update(stream,
                   {.weight = run(shard.weight),
                    .master = run(shard.master),
                    .m = run(moments_[s].m),
                    .v = run(moments_[s].v),
                    .grad = run(shard.grad),
                    .decay = spec.role != Role::vector,
                    .seed = config_.seed,
                    .purpose = purpose_of(spec.name),
                    .first_index = segment.logical_begin},
                   scalars, config_.adamw);
    }
  }
  params_.quantize_weights(stream);
}

}  // namespace lockstep
