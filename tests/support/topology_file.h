// A pretended cluster: the ranks that a launcher would start on the hosts of a JSON file
// (docs/formats.md). Layouts can be planned, and placement tested, without these hosts.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "dist/topology/topology.h"

namespace lockstep {

// Returns a rank for each GPU (or process), host by host. Throws DataError "FILE: hosts[1]: ...",
// with the key, its value and the expected one. The ranks have no CPU cores to share:
// machine_shares (dist/topology_here.h) is only for real places.
std::vector<RankPlace> pretend_cluster(const std::filesystem::path& file);
std::vector<RankPlace> pretend_cluster_of(std::string_view text, const std::string& file);

}  // namespace lockstep
