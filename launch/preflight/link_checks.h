// Checks of the links between ranks: pairs of hosts, and the groups of the layout.
#pragma once

#include <vector>

#include "launch/plan/link_times.h"
#include "launch/preflight/preflight_rank.h"

namespace lockstep {

// Measures sends of this rank to the ranks with its number on other hosts, one at a time. Returns
// the best rate in bytes per second; 0: no other hosts.
double check_hosts(PreflightRank& rank);

// Ranks that check_hosts cannot measure, because hosts have unequal numbers of ranks.
std::vector<int> ranks_without_partners(const Topology& topology);

// Measures latency and bandwidth of collectives along each axis. `slowest`: the least result of
// check_hosts over all ranks. If it is too low, the result is a finding instead.
LinkTimes check_collectives(PreflightRank& rank, double slowest);

// The best rates between a rank and its partners on other hosts, from the received rates of all
// ranks. The best partner counts, so that a slow partner does not make a host look slow.
struct Received {
  int from = 0;
  double bytes_per_second = 0;
};
struct PairRates {
  double sent = 0, received = 0;
  std::vector<int> partners;  // ranks that received data from this rank
};
PairRates pair_rates(World& world, const std::vector<Received>& received);

// The slowest of the groups of one kind, such as the shard groups of all hosts.
struct SlowestLink {
  Collective kind = Collective::all_gather;
  int ranks = 2, domains = 1;
  bool beside = false;
  double bytes_per_second = 0;
  int rank = 0;  // a rank of the group with that rate
  // Time of the smallest call: the latency of the fitted line is 0 if larger calls are disturbed.
  double latency_seconds = 0;
};
// Combines the measurements of all ranks. A collective call.
std::vector<SlowestLink> slowest_of_ranks(World& world, const LinkTimes& links);

}  // namespace lockstep
