#include "train/run_state.h"

namespace lockstep {
namespace {

// The elements of `flat`, a tensor laid out like the shard, that `segment` covers.
StateSlice slice(ParamStore& params, const Segment& segment, Tensor flat, const char* suffix) {
  const ParamSpec& spec = params.spec(segment.id);
  const auto part = params.layout().tensor_part(segment.id);
  const Comms& comms = params.comms();
  const bool is_split = part.parts > 1;
  return {.name = spec.name + suffix,
          .whole = spec.shape,
          .split = is_split ? Split{part.dim, static_cast<int>(part.parts), part.stored_size}
                            : unsplit(spec.shape),
          .piece = {is_split ? static_cast<int>(part.part) : 0, segment.logical_begin,
                    segment.logical_begin + segment.count},
          .local = flat.rows(segment.shard_begin, segment.count),
          .owned = segment.count > 0 && comms.replicate.whole->rank() == 0 &&
                   (is_split || comms.tensor->rank() == 0)};
}

// One of each parameter, in the order of the store: empty where this rank's shard has nothing of
// it.
std::vector<Segment> all_segments(ParamStore& params, const ParamShard& shard) {
  std::vector<Segment> all;
  auto there = shard.segments.begin();
  const auto count = static_cast<int>(params.layout().specs(shard.unit).size());
  for (int i = 0; i < count; ++i) {
    const ParamId id{shard.unit, i};
    const bool is_there = there != shard.segments.end() && there->id == id;
    all.push_back(is_there ? *there++ : Segment{.id = id});
  }
  return all;
}

}  // namespace

std::vector<StateSlice> weight_slices(ParamStore& params) {
  std::vector<StateSlice> slices;
  for (const ParamShard& shard : params.shards())
    for (const Segment& segment : all_segments(params, shard))
      slices.push_back(slice(params, segment, shard.master ? shard.master : shard.weight, ""));
  return slices;
}

std::vector<StateSlice> state_slices(ParamStore& params, const Optimizer& optimizer) {
  auto slices = weight_slices(params);
  const auto shards = params.shards();
  for (std::size_t s = 0; s < shards.size(); ++s)
    for (const Segment& segment : all_segments(params, shards[s])) {
      slices.push_back(slice(params, segment, optimizer.state()[s].m, "/adam_m"));
      slices.push_back(slice(params, segment, optimizer.state()[s].v, "/adam_v"));
    }
  slices.push_back(whole_slice("adamw/updates", optimizer.updates()));
  slices.back().owned = params.comms().all->rank() == 0;
  return slices;
}

}  // namespace lockstep
