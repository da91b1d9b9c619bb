#include "train/step/state_slices.h"

#include "dist/topology/holders.h"

namespace lockstep {
namespace {

Holders holders_here(ParamStore& params, bool is_divided) {
  const Comms& comms = params.comms();
  return holders_of(comms.mesh, is_divided, comms.world->rank());
}

// The elements of `flat`, a tensor laid out like the shard, that `segment` covers.
StateSlice slice(ParamStore& params, const Segment& segment, Tensor flat, const char* suffix) {
  const ParamSpec& spec = params.spec(segment.id);
  const auto part = params.layout().tensor_part(segment.id);
  const bool is_split = part.parts > 1;
  return {.name = spec.name + suffix,
          .whole = spec.shape,
          .split = is_split ? Split{part.dim, static_cast<int>(part.parts), part.stored_size}
                            : unsplit(spec.shape),
          .piece = {is_split ? static_cast<int>(part.part) : 0, segment.logical_begin,
                    segment.logical_begin + segment.count},
          .local = flat.rows(segment.shard_begin, segment.count),
          .owned = segment.count > 0 && holders_here(params, is_split).counts()};
}

// Holders of a large slice each save an equal part of it; they save small slices by turns. This
// rank loads the whole slice, in up to three pieces.
void share_out(std::vector<StateSlice>& slices, const StateSlice& whole, const Holders& holders,
               int turn) {
  constexpr std::int64_t kLeastPart = 1 << 16;  // elements
  const auto n = whole.local.elements();
  if (n < holders.count * kLeastPart) {
    slices.push_back(whole);
    slices.back().owned = n > 0 && turn % holders.count == holders.number;
    return;
  }
  const auto begin = n * holders.number / holders.count,
             end = n * (holders.number + 1) / holders.count;
  const auto add = [&](std::int64_t from, std::int64_t to) {
    if (from == to) return;
    auto& part = slices.emplace_back(whole);
    part.piece.begin = whole.piece.begin + from;
    part.piece.end = whole.piece.begin + to;
    part.local = whole.local.rows(from, to - from);
    part.owned = from == begin && to == end;
  };
  add(0, begin);
  add(begin, end);
  add(end, n);
}

// One segment of each parameter, in the order of the store; empty if this rank's shard has no
// element of it.
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
  std::vector<StateSlice> slices;
  int turn = 0;
  const auto add = [&](const StateSlice& whole) {
    share_out(slices, whole, holders_here(params, whole.split.parts > 1), turn++);
  };
  for (const auto& weight : weight_slices(params))
    add(weight);
  const auto shards = params.shards();
  for (std::size_t s = 0; s < shards.size(); ++s)
    for (const Segment& segment : all_segments(params, shards[s])) {
      add(slice(params, segment, optimizer.state()[s].m, "/adam_m"));
      add(slice(params, segment, optimizer.state()[s].v, "/adam_v"));
    }
  slices.push_back(whole_slice("adamw/updates", optimizer.updates()));
  slices.back().owned = params.comms().all->rank() == 0;
  return slices;
}

}  // namespace lockstep
