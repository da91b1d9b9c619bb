// Checks of what joins ranks: hosts in pairs, and the groups of the layout.
#pragma once

#include <vector>

#include "launch/plan/link_times.h"
#include "launch/preflight/preflight_rank.h"

namespace lockstep {

// Bytes a second that this rank sends to those at its place on other hosts, one at a time, to the
// best of them; 0: there are none.
double check_hosts(PreflightRank& rank);

// Those that check_hosts measures nothing of, as hosts have unequal numbers of ranks.
std::vector<int> ranks_without_partners(const Topology& topology);

// Latency and bandwidth of collectives, along each axis. slowest: of check_hosts, over all ranks;
// hosts that are joined too slowly are a finding instead.
LinkTimes check_collectives(PreflightRank& rank, double slowest);

// Of a rank and its partners on other hosts, from what each rank received of whom: the best rates,
// so that no host is blamed for a slow partner while it has others.
struct Received {
  int from = 0;
  double bytes_per_second = 0;
};
struct PairRates {
  double sent = 0, received = 0;
  std::vector<int> partners;  // that received something from it
};
PairRates pair_rates(World& world, const std::vector<Received>& received);

// Of groups of one kind, as of shard axes that lie on a host each, what the slowest ones had.
struct SlowestLink {
  Collective kind = Collective::all_gather;
  int ranks = 2, domains = 1;
  bool beside = false;
  double bytes_per_second = 0;
  int rank = 0;  // one of the group that had that
  // Of the smallest call: the line's own is 0 where larger calls are disturbed.
  double latency_seconds = 0;
};
// Of what each rank measured. All ranks at once.
std::vector<SlowestLink> slowest_of_ranks(World& world, const LinkTimes& links);

}  // namespace lockstep
