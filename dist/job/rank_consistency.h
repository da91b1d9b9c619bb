// Checks that all ranks have the same settings, before the first step of a run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dist/comms.h"

namespace lockstep {

using Fields = std::vector<std::pair<std::string, std::string>>;  // name, value

// Compares the fields of all ranks by a hash; only if a hash differs do ranks send their fields.
// Every rank of the world calls it together. If fields differ, all ranks throw the same
// ConfigError, with the names, the values and the ranks. `what` names the fields in the error:
// "configuration".
void agree(World& world, const std::string& what, const Fields& mine);

// Text of ascending ranks: "ranks 0-2, 5", "rank 4". It names at most 16 runs of ranks, and
// counts the rest: " and 300 more".
std::string rank_list(const std::vector<int>& ranks);
std::string rank_file(int rank, const char* extension);  // "rank-00003.txt"

}  // namespace lockstep
