// Who talks to whom when hosts are measured in pairs: as teams of a tournament meet, so that every
// host talks to one other at a time, and to none twice.
#pragma once

#include <optional>
#include <vector>

#include "dist/topology/topology.h"

namespace lockstep {

// By round, the rank on another host that `rank` is paired with: the one of the same number there;
// nothing: it waits. Rounds are as many as let all hosts meet, at most three; none where there is
// one host.
std::vector<std::optional<int>> partners_on_hosts(const Topology& topology, int rank);

}  // namespace lockstep
