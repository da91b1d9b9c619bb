#include "dist/topology_here.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/affinity.h"
#include "core/control_groups.h"
#include "core/gpu.h"
#include "core/system/gpu_monitor.h"
#include "core/thread_pool.h"

namespace lockstep {
namespace {

// The values of ranks, joined by commas; a single value if all are equal.
template <class Value, class Of>
std::string joined(const std::vector<Value>& values, const Of& of) {
  const bool alike = std::all_of(values.begin(), values.end(), [&](const Value& value) {
    return of(value) == of(values.front());
  });
  std::string text;
  for (const auto& value : values) {
    text += str(text.empty() ? "" : ",", of(value));
    if (alike) break;
  }
  return text;
}

// Devices with a link to this one as CUDA reports them; unknown if CUDA shows this process no other
// GPU.
std::optional<std::vector<std::string>> linked_devices(Device device) {
  const int count = gpu::devices().count;
  if (count < 2) return std::nullopt;
  std::vector<std::string> peers;
  for (int other = 0; other < count; ++other)
    if (other != device.index && gpu::are_linked(device.index, other))
      peers.push_back(pci_address(gpu::pci_bus_id(other)));
  return peers;
}

}  // namespace

RankPlace this_place(Device device, const std::filesystem::path& sysfs) {
  RankPlace place;
  place.host = host_name();
  place.machine = machine_id();
  place.processors = affinity();
  place.processors_granted = processors_granted(control_groups());
  if (device.kind == Device::Kind::cpu) return place;
  const auto bus_id = gpu::pci_bus_id(device.index);
  place.gpu = device.index;
  place.gpu_name = gpu::properties(device.index).name;
  place.pci_address = pci_address(bus_id);
  const GpuMonitor monitor(bus_id);
  place.fabric_clique = monitor.fabric_clique();
  place.nvlink_peers = monitor.nvlink_peers();
  if (!place.nvlink_peers) place.nvlink_peers = linked_devices(device);
  const auto adapter = nearest_adapter(sysfs, place.pci_address);
  place.adapter = adapter.name;
  place.rail = adapter.index;
  place.numa_node = numa_node(sysfs, place.pci_address);
  return place;
}

std::vector<int> ranks_here(World& world) {
  const auto here = machine_id() + " " + host_name();
  const auto places = world.exchange(here);
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank)
    if (places[static_cast<std::size_t>(rank)] == here) ranks.push_back(rank);
  return ranks;
}

MachineShares machine_shares(const Topology& topology, int rank,
                             const std::filesystem::path& sysfs) {
  MachineShares machine;
  machine.ranks = host_ranks(topology, rank);
  std::vector<Tenant> tenants;
  std::vector<RankPlace> places;
  for (const int other : machine.ranks) {
    places.push_back(topology.places[static_cast<std::size_t>(other)]);
    tenants.push_back({places.back().processors, places.back().numa_node});
  }
  machine.shares = divide_processors(sysfs, tenants);
  for (std::size_t i = 0; i < places.size(); ++i) {
    // Ranks of one container (same host name) with equal grants share the grant.
    const auto sharers = std::count_if(places.begin(), places.end(), [&](const RankPlace& other) {
      return other.host == places[i].host &&
             other.processors_granted == places[i].processors_granted;
    });
    const auto granted = places[i].processors_granted / std::max(static_cast<int>(sharers), 1);
    const auto processors = static_cast<int>(machine.shares[i].processors.size());
    machine.busy.push_back(std::max(std::min(granted, processors), 1));
  }
  return machine;
}

void use_share(const MachineShares& machine, int rank) {
  const auto found = std::find(machine.ranks.begin(), machine.ranks.end(), rank);
  LOCKSTEP_CHECK(found != machine.ranks.end(), "rank ", rank, " is on another host");
  const auto i = static_cast<std::size_t>(found - machine.ranks.begin());
  use_processors(machine.shares[i].processors, machine.busy[i]);
}

std::string in_words(const Topology& topology, const MachineShares& machine) {
  std::vector<RankPlace> places;
  for (const int rank : machine.ranks)
    places.push_back(topology.places[static_cast<std::size_t>(rank)]);
  const auto is = [](auto member) { return [member](const RankPlace& p) { return p.*member; }; };
  std::string text;
  std::set<std::string> gpus;
  for (const auto& place : places)
    gpus.insert(place.pci_address);
  if (places.front().gpu >= 0)
    text = str(" on ", gpus.size(), " x ", joined(places, is(&RankPlace::gpu_name)));
  const auto says = [&](auto member, auto unknown) {
    return std::any_of(places.begin(), places.end(),
                       [&](const RankPlace& place) { return place.*member != unknown; });
  };
  if (says(&RankPlace::numa_node, -1))
    text += str(", NUMA ", joined(places, is(&RankPlace::numa_node)));
  if (says(&RankPlace::adapter, std::string()))
    text += str(", NICs ", joined(places, is(&RankPlace::adapter)));
  const auto bound = std::count_if(machine.shares.begin(), machine.shares.end(),
                                   [](const ProcessorShare& s) { return s.set_by_launcher; });
  text += str(", ", joined(machine.busy, [](int busy) { return busy; }),
              machine.busy == std::vector(machine.busy.size(), 1) ? " CPU core" : " CPU cores",
              machine.ranks.size() > 1 ? " each" : "");
  if (bound > 0) text += ", bound by the launcher or container";
  return text;
}

std::vector<std::string> in_words(const Topology& topology, const std::vector<std::string>& said) {
  constexpr std::size_t kMostNamed = 4;
  std::map<std::string, std::vector<int>> ranks_of;  // by machine
  for (int rank = 0; rank < std::ssize(said); ++rank)
    ranks_of[topology.places[static_cast<std::size_t>(rank)].machine].push_back(rank);
  std::map<std::string, std::vector<std::string>> machines;  // hosts by their text
  std::vector<std::string> order;
  for (int rank = 0; rank < std::ssize(said); ++rank) {
    const auto& ranks = ranks_of[topology.places[static_cast<std::size_t>(rank)].machine];
    if (ranks.front() != rank) continue;
    std::vector<std::string> hosts;
    for (const int other : ranks)
      hosts.push_back(topology.places[static_cast<std::size_t>(other)].host);
    const auto& how = said[static_cast<std::size_t>(rank)];
    if (!machines.contains(how)) order.push_back(how);
    machines[how].push_back(str("host ", joined(hosts, [](const auto& host) { return host; }),
                                ranks.size() == 1 ? ": rank " : ": ranks ", cpu_list(ranks)));
  }
  std::vector<std::string> lines;
  for (const auto& how : order) {
    const auto& alike = machines[how];
    auto& line = lines.emplace_back(alike.front() + how);
    for (std::size_t i = 1; i < std::min(alike.size(), kMostNamed); ++i)
      line += str(i == 1 ? "; alike: " : ", ", alike[i]);
    if (alike.size() > kMostNamed) line += str(" and ", alike.size() - kMostNamed, " more");
  }
  return lines;
}

}  // namespace lockstep
