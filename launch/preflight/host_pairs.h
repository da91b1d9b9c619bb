// Pairs hosts for measurements like a round-robin tournament: each host communicates with one other
// host at a time, and with none twice.
#pragma once

#include <optional>
#include <vector>

#include "dist/topology/topology.h"

namespace lockstep {

// Returns the partner of `rank` in each round: the rank with the same number on another host, or
// nullopt if `rank` waits. There are enough rounds for all hosts to meet, but at most 3, and none
// for a single host.
std::vector<std::optional<int>> partners_on_hosts(const Topology& topology, int rank);

}  // namespace lockstep
