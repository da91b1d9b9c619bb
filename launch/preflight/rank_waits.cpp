#include "launch/preflight/rank_waits.h"

#include <algorithm>

#include "core/median.h"
#include "dist/volume.h"

namespace lockstep {
namespace {

double own_seconds(const OpLog& log) {
  double sum = 0;
  for (const auto& entry : log.entries())
    if (entry.what == OpLog::What::op && entry.op.kind != Op::Kind::collective)
      sum += entry.seconds;
  return sum;
}

// Concatenates the values of all ranks of the group.
std::vector<float> of_all(Communicator& group, Stream& stream, const std::vector<float>& mine) {
  const auto n = std::ssize(mine);
  const std::int64_t bytes = bytes_per_element(DType::fp32) * n * (group.size() + 1) + (1 << 12);
  Arena arena(stream.device(), Arena::Memory::device, bytes);
  Arena pinned(stream.device(), Arena::Memory::pinned_host, bytes);
  const Tensor sent = arena.allocate("sent", DType::fp32, {n});
  const Tensor received = arena.allocate("received", DType::fp32, {group.size() * n});
  const Tensor on_host = pinned.allocate("mine", DType::fp32, {n});
  const Tensor all_on_host = pinned.allocate("all", DType::fp32, {group.size() * n});
  std::ranges::copy(mine, on_host.as<float>());
  stream.copy(sent, on_host);
  group.all_gather(received, sent, stream);
  stream.copy(all_on_host, received);
  stream.synchronize();
  return {all_on_host.as<float>(), all_on_host.as<float>() + all_on_host.elements()};
}

// Waits at the collectives of the group. The last rank to arrive does not wait, so the wait of each
// rank is its time beyond that of the fastest rank.
double seconds_waited(const OpLog& log, const Comms& comms, Group id, Stream& stream) {
  Communicator& group = group_of(comms, id);
  std::vector<float> mine;
  for (const auto& entry : log.entries())
    if (entry.what == OpLog::What::op && entry.op.kind == Op::Kind::collective &&
        entry.op.group == id)
      mine.push_back(static_cast<float>(entry.seconds));
  if (group.size() == 1 || mine.empty()) return 0;
  const auto all = of_all(group, stream, mine);
  double waited = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    float least = mine[i];
    for (std::size_t other = i; other < all.size(); other += mine.size())
      least = std::min(least, all[other]);
    waited += mine[i] - least;
  }
  return waited;
}

}  // namespace

double own_seconds(const std::vector<const OpLog*>& steps) {
  std::vector<double> all;
  for (const OpLog* log : steps)
    all.push_back(own_seconds(*log));
  return median(all);
}

double wait_share(PreflightRank& rank, const std::vector<const OpLog*>& steps) {
  std::vector<double> shares;
  for (const OpLog* log : steps) {
    double waited = 0;
    for (const Group id : {Group::tensor, Group::all})
      waited += seconds_waited(*log, rank.comms, id, rank.compute);
    shares.push_back(waited / own_seconds(*log));
  }
  double sum = 0;
  for (const double share : numbers_of_ranks(rank.world, median(shares)))
    sum += share;
  return sum / rank.world.size();
}

}  // namespace lockstep
