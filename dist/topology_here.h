// What this process says of itself, and what it gets of its machine.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/system/machine.h"
#include "core/tensor.h"
#include "dist/comms.h"
#include "dist/topology/topology.h"

namespace lockstep {

// Of a rank that computes on `device`. Asked before any thread is pinned.
RankPlace this_place(Device device, const std::filesystem::path& sysfs = "/sys");

// The ranks that share this machine, or of its containers this one: its memory and its GPUs.
// Ascending; every rank of the world at once.
std::vector<int> ranks_here(World& world);

// How the ranks on one machine share its processors, see core/system/machine.h. Only a rank of that
// machine can tell, from its sysfs.
//
// Memory needs no policy of its own: Linux takes a page from the NUMA node of the processor that
// first writes it, and once use_processors was called that is one of the rank's.
struct MachineShares {
  std::vector<int> ranks;              // on the machine, ascending
  std::vector<ProcessorShare> shares;  // of each
  std::vector<int> busy;  // processors that each may keep busy: fewer where control groups say so
};
MachineShares machine_shares(const Topology& topology, int rank,
                             const std::filesystem::path& sysfs = "/sys");

// Takes the part of `rank` by use_processors (core/thread_pool.h): before its streams are made.
void use_share(const MachineShares& machine, int rank);

// How the ranks of a machine sit there: " on 8 x NVIDIA H100, NUMA 0,0,0,0,1,1,1,1, adapters
// mlx5_0,mlx5_3,..., 28 processors each".
std::string in_words(const Topology& topology, const MachineShares& machine);
// A line for each machine, of what the ranks say of theirs by the former, and one for all that are
// alike: "host n1: ranks 0-7 on ..., 28 processors each; alike: host n2: ranks 8-15".
std::vector<std::string> in_words(const Topology& topology, const std::vector<std::string>& said);

}  // namespace lockstep
