#include "launch/preflight/host_pairs.h"

#include <algorithm>

namespace lockstep {
namespace {

// Of an even number of teams, the one that `team` meets in `round`: all but the last turn, and
// those meet whose numbers sum to the round's; the last one meets who would meet itself.
std::size_t opponent(std::size_t teams, std::size_t team, std::size_t round) {
  const auto turning = teams - 1;
  if (team == turning) return round * (teams / 2) % turning;  // twice that is the round's
  const auto other = (round + turning - team) % turning;
  return other == team ? turning : other;
}

}  // namespace

std::vector<std::optional<int>> partners_on_hosts(const Topology& topology, int rank) {
  constexpr std::size_t kMostRounds = 3;
  const auto hosts = machines(topology);
  if (hosts.size() == 1) return {};
  const auto ours = machine_ranks(topology, rank);
  const auto mine = static_cast<std::size_t>(std::ranges::find(hosts, ours) - hosts.begin());
  const auto place = static_cast<std::size_t>(std::ranges::find(ours, rank) - ours.begin());
  const std::size_t teams = hosts.size() + hosts.size() % 2;  // the odd one out meets nobody
  std::vector<std::optional<int>> partners;
  for (std::size_t round = 0; round < std::min(teams - 1, kMostRounds); ++round) {
    const auto other = opponent(teams, mine, round);
    const bool is_there = other < hosts.size() && place < hosts[other].size();
    partners.push_back(is_there ? std::optional(hosts[other][place]) : std::nullopt);
  }
  return partners;
}

}  // namespace lockstep
