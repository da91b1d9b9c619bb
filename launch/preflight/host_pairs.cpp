#include "launch/preflight/host_pairs.h"

#include <algorithm>

namespace lockstep {
namespace {

// Opponent of `team` in `round`, for an even number of teams (circle method). All teams but the
// last rotate: two teams meet if their numbers sum to the round modulo teams - 1. The last team
// meets the one that would meet itself.
std::size_t opponent(std::size_t teams, std::size_t team, std::size_t round) {
  const auto turning = teams - 1;
  if (team == turning) return round * (teams / 2) % turning;  // x with 2x = round modulo turning
  const auto other = (round + turning - team) % turning;
  return other == team ? turning : other;
}

}  // namespace

std::vector<std::optional<int>> partners_on_hosts(const Topology& topology, int rank) {
  constexpr std::size_t kMostRounds = 3;
  const auto hosts = machines(topology);
  if (hosts.size() == 1) return {};
  const auto ours = host_ranks(topology, rank);
  const auto mine = static_cast<std::size_t>(std::ranges::find(hosts, ours) - hosts.begin());
  const auto place = static_cast<std::size_t>(std::ranges::find(ours, rank) - ours.begin());
  const std::size_t teams = hosts.size() + hosts.size() % 2;  // one host waits if odd
  std::vector<std::optional<int>> partners;
  for (std::size_t round = 0; round < std::min(teams - 1, kMostRounds); ++round) {
    const auto other = opponent(teams, mine, round);
    const bool is_there = other < hosts.size() && place < hosts[other].size();
    partners.push_back(is_there ? std::optional(hosts[other][place]) : std::nullopt);
  }
  return partners;
}

}  // namespace lockstep
