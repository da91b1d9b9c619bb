// The place of this process on its host, and its share of the host's CPU cores.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/system/machine.h"
#include "core/tensor.h"
#include "dist/comms.h"
#include "dist/topology/topology.h"

namespace lockstep {

// Place of a rank that computes on `device`. Call it before any thread is pinned.
RankPlace this_place(Device device, const std::filesystem::path& sysfs = "/sys");

// The ranks that share this host's memory and GPUs, in ascending order. Inside containers: the
// ranks that share this container. Every rank of the world calls it at the same time.
std::vector<int> ranks_here(World& world);

// How the ranks on one host share its CPU cores, see core/system/machine.h. Only a rank of that
// host can determine it, from the host's sysfs.
//
// Memory needs no policy of its own. Linux takes a page from the NUMA node of the CPU core that
// first writes it, and after use_processors that is a core of the rank.
struct MachineShares {
  std::vector<int> ranks;              // on the host, ascending
  std::vector<ProcessorShare> shares;  // share of each rank
  std::vector<int> busy;  // CPU cores that each may keep busy: fewer if control groups limit it
};
MachineShares machine_shares(const Topology& topology, int rank,
                             const std::filesystem::path& sysfs = "/sys");

// Applies the share of `rank` by use_processors (core/thread_pool.h). Call it before the rank's
// streams are made.
void use_share(const MachineShares& machine, int rank);

// Placement of a host's ranks as text: " on 8 x NVIDIA H100, NUMA 0,0,0,0,1,1,1,1, NICs
// mlx5_0,mlx5_3,..., 28 CPU cores each".
std::string in_words(const Topology& topology, const MachineShares& machine);
// One line per host, from the texts that the ranks made with the function above; hosts that are
// alike share one line: "host n1: ranks 0-7 on ..., 28 CPU cores each; alike: host n2: ranks
// 8-15".
std::vector<std::string> in_words(const Topology& topology, const std::vector<std::string>& said);

}  // namespace lockstep
