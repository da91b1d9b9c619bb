// A pretend cluster: the ranks that a launcher would start on hosts that a JSON file describes
// (docs/formats.md), so that layouts can be planned, and placement tested, without them.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "dist/topology/topology.h"

namespace lockstep {

// A rank for each GPU (or process), host by host. Throws DataError "FILE: hosts[1]: ...", with the
// key, what it is and what was expected. They have no processors to share: machine_shares
// (dist/topology_here.h) is asked of real places.
std::vector<RankPlace> pretend_cluster(const std::filesystem::path& file);
std::vector<RankPlace> pretend_cluster_of(std::string_view text, const std::string& file);

}  // namespace lockstep
