#include "train/step/optimizer.h"

#include <algorithm>
#include <utility>

#include "core/philox.h"
#include "dist/topology/holders.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace lockstep {

void Optimizer::allocate(Arena& arena, Stream& stream, Arena* offloaded) {
  const Arena::For here(arena, Purpose::moments);
  const Arena::For there(offloaded != nullptr ? *offloaded : arena, Purpose::moments);
  const auto zeros = [&](Arena& from, const char* name, DType dtype, const Shape& shape) {
    const Tensor t = from.allocate(name, dtype, shape);
    fill(stream, t, 0.0f);
    return t;
  };
  Arena& moments = offloaded != nullptr ? *offloaded : arena;
  for (const ParamShard& shard : params_.shards()) {
    state_.push_back({.master = shard.master,
                      .m = zeros(moments, "adamw_m", config_.moments, shard.weight.shape),
                      .v = zeros(moments, "adamw_v", config_.moments, shard.weight.shape)});
    add_squares_of(shard);
  }
  updates_ = zeros(arena, "adamw_updates", DType::int32, {1});
  control_ = zeros(arena, "adamw_control", DType::fp32, {5});
  squares_ = zeros(arena, "gradient_squares", DType::fp32, {1});
  if (offloaded != nullptr) return make_ring(arena, stream);
  const bool are_gathered = params_.comms().gathers->size() > 1;
  runs_.resize(are_gathered && state_.size() > kFirstUnits ? 2 : 1);
  for (std::size_t s = 0; s < state_.size(); ++s)
    add_runs(s < kFirstUnits ? runs_.front() : runs_.back(), params_.shards()[s], 0, state_[s]);
}

// Elements that several ranks hold count once. A shard begins with the elements that tensor ranks
// divide.
void Optimizer::add_squares_of(const ParamShard& shard) {
  const Mesh& mesh = params_.comms().mesh;
  const int rank = params_.comms().world->rank();
  const auto n = holders_of(mesh, /*is_divided=*/false, rank).counts() ? shard.grad.elements()
                 : holders_of(mesh, /*is_divided=*/true, rank).counts()
                     ? params_.layout().replicated_from(shard.unit)
                     : 0;
  if (n > 0) grads_.push_back(shard.grad.rows(0, n));
}

void Optimizer::make_ring(Arena& arena, const Stream& stream) {
  struct Chunk {
    const ParamShard* shard;
    std::int64_t begin;
  };
  std::vector<Chunk> chunks;
  std::vector<AdamWState> host;
  for (std::size_t s = 0; s < state_.size(); ++s) {
    const ParamShard& shard = params_.shards()[s];
    const auto n = shard.weight.elements();
    for (std::int64_t begin = 0; begin < n; begin += OptimizerRing::kMostElements) {
      chunks.push_back({&shard, begin});
      host.push_back(state_[s].rows(begin, std::min(OptimizerRing::kMostElements, n - begin)));
    }
  }
  ring_.emplace(arena, stream, std::move(host));
  for (std::size_t c = 0; c < chunks.size(); ++c)
    add_runs(runs_.emplace_back(), *chunks[c].shard, chunks[c].begin, ring_->on_device(c));
}

void Optimizer::add_runs(std::vector<AdamWRun>& runs, const ParamShard& shard, std::int64_t begin,
                         const AdamWState& state) const {
  for (const Segment& segment : shard.segments) {
    const auto first = std::max(begin, segment.shard_begin);
    const auto n =
        std::min(begin + state.m.elements(), segment.shard_begin + segment.count) - first;
    if (n <= 0) continue;
    const ParamSpec& spec = params_.spec(segment.id);
    const AdamWState part = state.rows(first - begin, n);
    const auto at = params_.layout().indices(segment.id);
    const auto j = segment.logical_begin + first - segment.shard_begin;
    const auto part_of = params_.layout().tensor_part(segment.id);
    const bool by_columns = part_of.dim == 1 && part_of.parts > 1;
    runs.push_back({.weight = shard.weight.rows(first, n),
                    .master = part.master,
                    .m = part.m,
                    .v = part.v,
                    .grad = shard.grad.rows(first, n),
                    .decay = spec.role != Role::vector,
                    .purpose = purpose_of(spec.name),
                    .first_index = by_columns ? j : at.first + j,
                    .columns = by_columns ? AdamWRun::Columns{at.first, at.columns, at.stride}
                                          : AdamWRun::Columns{},
                    .absmax = params_.weight_absmax(segment.id)});
  }
}

void Optimizer::step(Stream& stream, Arena& scratch, const Step& step) {
  fill(stream, squares_, 0.0f);
  sum_of_squares(stream, scratch, squares_, grads_);
  params_.comms().all->all_reduce(squares_, ReduceOp::sum, stream);
  const AdamWScalars scalars{step.learning_rate, step.step, updates_, control_,
                             params_.weight_absmax()};
  adamw_control(stream, scalars, {squares_, step.loss_sum, step.valid_tokens}, config_.adamw);
  const auto update = [&](std::size_t i) {
    adamw_update(stream, runs_[i], scalars, config_.adamw);
  };
  if (ring_) {
    ring_->update(stream, update);
  } else {
    update(0);
    if (runs_.size() > 1) {
      params_.first_weights_changed(stream, kFirstUnits);
      update(1);
    }
  }
  params_.weights_changed(stream);
}

}  // namespace lockstep
