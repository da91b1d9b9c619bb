// Agreement: ranks that would not compute the same run are refused before its first step.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dist/comms.h"

namespace lockstep {

using Fields = std::vector<std::pair<std::string, std::string>>;  // name, value

// Every rank of the world at once. Throws ConfigError, the same on all, unless all give the same
// fields: which differ, what they are, and on which ranks. `what` says of what: "configuration".
void agree(World& world, const std::string& what, const Fields& mine);

// "ranks 0-2, 5", "rank 4"; of ascending ranks.
std::string rank_list(const std::vector<int>& ranks);
std::string rank_file(int rank, const char* extension);  // "rank-00003.txt"

}  // namespace lockstep
