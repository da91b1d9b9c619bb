#include "train/step/weight_hash.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/philox.h"
#include "dist/topology/holders.h"
#include "kernels/content_hash.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

constexpr int kWords = sizeof(std::uint64_t) / sizeof(std::int32_t);

// The groups of ranks with equal values, the largest first.
std::vector<std::vector<int>> groups_of(const std::map<std::uint64_t, std::vector<int>>& by_value) {
  std::vector<std::vector<int>> groups;
  for (const auto& [value, ranks] : by_value)
    groups.push_back(ranks);
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  return groups;
}

}  // namespace

WeightHash::WeightHash(ParamStore& params, Arena& arena, Arena& pinned) : params_(params) {
  mine_ = arena.allocate("weight_hash", DType::int32, {kParts, kWords});
  const auto ranks = params.comms().all->size();
  const auto all = arena.allocate("weight_hashes", DType::int32, {ranks, kParts, kWords});
  for (Slot& slot : slots_)
    slot.all = Mirror("weight_hashes", all, pinned);
}

void WeightHash::enqueue(Stream& stream) {
  LOCKSTEP_CHECK(enqueued_ - read_ < slots_.size(), "two weight hashes were not read yet");
  fill_integer(stream, mine_, 0);
  const ParamLayout& layout = params_.layout();
  for (const ParamShard& shard : params_.shards())
    for (const Segment& segment : shard.segments) {
      if (segment.count == 0) continue;
      const Tensor weights = shard.master ? shard.master : shard.weight;
      const auto at = layout.indices(segment.id);
      const bool is_divided = layout.tensor_part(segment.id).parts > 1;
      add_content_hash(stream, mine_.rows(is_divided ? 0 : 1, 1).view({kWords}),
                       weights.rows(segment.shard_begin, segment.count),
                       {.purpose = purpose_of(params_.spec(segment.id).name),
                        .first_index = segment.logical_begin,
                        .first = at.first,
                        .columns = at.columns,
                        .stride = at.stride});
    }
  Slot& slot = slots_[enqueued_++ % slots_.size()];
  const Tensor all = slot.all.device();
  params_.comms().all->all_gather(all.view({all.elements()}), mine_.view({mine_.elements()}),
                                  stream);
  slot.all.fetch(stream);
  slot.done = stream.record();
}

WeightHash::Result WeightHash::read() {
  LOCKSTEP_CHECK(read_ < enqueued_, "no weight hash is enqueued");
  const Slot& slot = slots_[read_++ % slots_.size()];
  slot.done.synchronize();
  std::vector<Parts> of_ranks(static_cast<std::size_t>(params_.comms().all->size()));
  std::memcpy(of_ranks.data(), slot.all.host().data, of_ranks.size() * sizeof(Parts));
  return result_of(of_ranks);
}

WeightHash::Result WeightHash::result_of(const std::vector<Parts>& of_ranks) const {
  const Mesh& mesh = params_.comms().mesh;
  // The kind of a part (0: elements that tensor ranks divide, 1: elements that each of them holds),
  // and its place in the state.
  using Place = std::pair<int, std::array<int, 2>>;
  std::map<Place, std::map<std::uint64_t, std::vector<int>>> holders;
  for (int rank = 0; rank < static_cast<int>(of_ranks.size()); ++rank) {
    const auto& parts = of_ranks[static_cast<std::size_t>(rank)];
    holders[{0, place_in_state(mesh, /*is_divided=*/true, rank)}][parts[0]].push_back(rank);
    holders[{1, place_in_state(mesh, /*is_divided=*/false, rank)}][parts[1]].push_back(rank);
  }
  Result result;
  for (const auto& [place, by_value] : holders) {
    result.hash += by_value.begin()->first;
    if (by_value.size() > 1 && result.unequal.empty()) result.unequal = groups_of(by_value);
  }
  return result;
}

std::string hex_of(std::uint64_t hash) {
  std::string text(16, '0');
  for (int digit = 15; digit >= 0; --digit, hash >>= 4)
    text[static_cast<std::size_t>(digit)] = "0123456789abcdef"[hash & 15];
  return text;
}

}  // namespace lockstep
