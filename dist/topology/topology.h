// Topology: where the ranks of a run sit, and which of them NVLink joins. It is computed from what
// each rank says of itself, which the caller exchanges: every rank computes the same. Ranks here
// are numbered as the launcher does; dist/topology/topology_placement.h gives each its place in the
// mesh.
#pragma once

#include <climits>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace lockstep {

// What a rank says of itself. dist/topology_here.h finds it, tests/support/topology_file.h pretends
// it.
struct RankPlace {
  std::string host;     // for people: two machines, or containers of one, may share it
  std::string machine;  // core/system/machine.h
  int gpu = -1;         // CUDA's number of it in the rank's process; -1: the rank is on processors
  std::string gpu_name;
  std::string pci_address;                               // of the GPU
  std::string fabric_clique;                             // core/system/gpu_monitor.h
  std::optional<std::vector<std::string>> nvlink_peers;  // core/system/gpu_monitor.h
  std::string adapter;                                   // the GPU's nearest; core/system/machine.h
  int rail = -1;                     // its number on the machine: adapters of one number are a rail
  int numa_node = -1;                // of the GPU
  std::vector<int> processors;       // those that the launcher lets the rank use
  int processors_granted = INT_MAX;  // core/control_groups.h
};
Json to_json(const RankPlace& place);
RankPlace rank_place(const Json& json);  // throws DataError naming the key

// Ranks whose GPUs reach each other by NVLink. In a run on processors: the ranks of a machine.
struct Domain {
  std::string name;            // "host n1", "GPU 3 of host n1"
  std::vector<int> ranks;      // ascending
  bool links_unknown = false;  // a GPU alone on a host of several, as its nvlink_peers are unknown
};

struct Topology {
  std::vector<RankPlace> places;  // of each rank
  std::vector<Domain> domains;    // by their first ranks
  std::vector<int> domain_of;     // of each rank: index into domains
};

// Several ranks on one GPU: mostly a mistake, but how one GPU tests what many do.
enum class SharedGpus : unsigned char { refused, meant };

// A domain is a clique of an NVLink fabric, where NVML knows one; else GPUs of one machine of which
// each pair is linked; else one GPU. Throws ConfigError where two ranks are on one GPU and that is
// refused.
Topology topology_of(std::vector<RankPlace> places, SharedGpus shared = SharedGpus::refused);

// The same run with other numbers: rank r of the result is rank order[r] of `topology`. `order` has
// each rank once.
Topology renumbered(const Topology& topology, const std::vector<int>& order);

// The ranks of each machine, ascending; machines by their first ranks.
std::vector<std::vector<int>> machines(const Topology& topology);
// Those on the machine of `rank`.
std::vector<int> machine_ranks(const Topology& topology, int rank);

// "host n1", "hosts n1, n2": those of these ranks.
std::string hosts_in_words(const Topology& topology, const std::vector<int>& ranks);

// "16 ranks on 2 hosts; NVLink domains: 2 of 8 ranks", and what a person should know of them.
std::string in_words(const Topology& topology);

}  // namespace lockstep
