// Topology: the hosts of the ranks, and the NVLink domains that their GPUs form. The caller
// exchanges the RankPlace of every rank, and every rank computes the same topology from them. Ranks
// have the launcher's numbers here; dist/topology/topology_placement.h assigns places in the mesh.
#pragma once

#include <climits>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace lockstep {

// Place of one rank. dist/topology_here.h finds it.
struct RankPlace {
  std::string host;     // host name, for messages; hosts and containers may share one
  std::string machine;  // identity of the host, see core/system/machine.h
  int gpu = -1;         // CUDA's device number in the rank's process; -1: the rank is on CPU cores
  std::string gpu_name;
  std::string pci_address;                               // of the GPU
  std::string fabric_clique;                             // core/system/gpu_monitor.h
  std::optional<std::vector<std::string>> nvlink_peers;  // core/system/gpu_monitor.h
  std::string adapter;               // NIC nearest to the GPU, see core/system/machine.h
  int rail = -1;                     // number of the NIC on its host; equal numbers are one rail
  int numa_node = -1;                // of the GPU
  std::vector<int> processors;       // CPU cores that the launcher lets the rank use
  int processors_granted = INT_MAX;  // core/control_groups.h
};
Json to_json(const RankPlace& place);
RankPlace rank_place(const Json& json);  // throws DataError naming the key

// NVLink domain: ranks whose GPUs reach each other by NVLink. In a run on CPUs: ranks of one host.
struct Domain {
  std::string name;        // "host n1", "GPU 3 of host n1"
  std::vector<int> ranks;  // ascending
  // One GPU of several on its host, alone in the domain because its nvlink_peers are unknown.
  bool links_unknown = false;
};

struct DomainMap {
  std::vector<Domain> domains;  // sorted by their first ranks
  std::vector<int> domain_of;   // index into domains, of each rank
  bool has_gpus = false;        // else ranks are on CPU cores, and a domain is a host
};
struct Topology : DomainMap {
  std::vector<RankPlace> places;  // of each rank
};

// Whether several ranks may share one GPU. It is usually a mistake, but lets one GPU test many
// ranks.
enum class SharedGpus : unsigned char { refused, meant };

// Computes the domains. A domain is a clique of an NVLink fabric if NVML reports one; otherwise
// GPUs of one host of which each pair is linked; otherwise one GPU. Throws ConfigError if two ranks
// share a GPU and `shared` is refused.
Topology topology_of(std::vector<RankPlace> places, SharedGpus shared = SharedGpus::refused);

// Returns the topology with renumbered ranks: rank r of the result is rank order[r] of `topology`.
// `order` has each rank once.
Topology renumbered(const Topology& topology, const std::vector<int>& order);
DomainMap renumbered_domains(const DomainMap& map, const std::vector<int>& order);

// Ranks of each host, ascending; hosts are sorted by their first ranks.
std::vector<std::vector<int>> machines(const Topology& topology);
// Ranks on the host of `rank`.
std::vector<int> host_ranks(const Topology& topology, int rank);

// Host names of the ranks: "host n1", "hosts n1, n2".
std::string hosts_in_words(const Topology& topology, const std::vector<int>& ranks);

int smallest_domain(const DomainMap& map);  // its number of ranks
// Number of domains that hold `ranks`.
int number_of_domains(const DomainMap& map, const std::vector<int>& ranks);

// Log line: "16 ranks on 2 hosts; NVLink domains: 2 x 8 ranks", with a note on unknown links.
std::string in_words(const Topology& topology);

}  // namespace lockstep
