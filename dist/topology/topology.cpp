#include "dist/topology/topology.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/affinity.h"

namespace lockstep {
namespace {

std::size_t at(int rank) {
  return static_cast<std::size_t>(rank);
}

bool knows(const RankPlace& a, const RankPlace& b) {
  return a.nvlink_peers && std::find(a.nvlink_peers->begin(), a.nvlink_peers->end(),
                                     b.pci_address) != a.nvlink_peers->end();
}

// Whether two ranks of one host are linked.
bool linked(const RankPlace& a, const RankPlace& b) {
  return a.pci_address == b.pci_address || (knows(a, b) && knows(b, a));
}

// Key that the ranks of one domain share. It decides alone, except for GPUs without a fabric.
std::string common_place(const RankPlace& place) {
  if (place.gpu < 0) return "processors of " + place.machine;
  if (!place.fabric_clique.empty()) return "fabric " + place.fabric_clique;
  return "GPUs of " + place.machine;
}

void refuse_shared_gpus(const std::vector<RankPlace>& places) {
  std::map<std::pair<std::string, std::string>, std::size_t> taken;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const auto& place = places[rank];
    if (place.gpu < 0) continue;
    const auto [before, is_first] =
        taken.emplace(std::pair(place.machine, place.pci_address), rank);
    if (!is_first)
      throw ConfigError(str("ranks ", before->second, " and ", rank, " are both on the GPU ",
                            place.pci_address, " of host ", place.host,
                            "; start at most one rank for each GPU of a host, and do not hide "
                            "GPUs with CUDA_VISIBLE_DEVICES"));
  }
}

// Each rank joins the first domain whose members are all linked to it. Ranks are taken in the order
// of their GPUs' addresses, so domains do not depend on the numbers of the ranks.
std::vector<Domain> find_domains(const std::vector<RankPlace>& places) {
  std::vector<int> by_address(places.size());
  std::iota(by_address.begin(), by_address.end(), 0);
  std::stable_sort(by_address.begin(), by_address.end(), [&](int a, int b) {
    return places[at(a)].pci_address < places[at(b)].pci_address;
  });
  std::vector<Domain> domains;
  std::map<std::string, std::vector<std::size_t>> in_common;
  for (const int rank : by_address) {
    const auto& place = places[at(rank)];
    const bool by_pairs = place.gpu >= 0 && place.fabric_clique.empty();
    auto& candidates = in_common[common_place(place)];
    const auto joins = [&](std::size_t domain) {
      const auto& ranks = domains[domain].ranks;
      return !by_pairs || std::all_of(ranks.begin(), ranks.end(),
                                      [&](int other) { return linked(places[at(other)], place); });
    };
    const auto found = std::find_if(candidates.begin(), candidates.end(), joins);
    if (found != candidates.end()) {
      domains[*found].ranks.push_back(rank);
      continue;
    }
    candidates.push_back(domains.size());
    domains.push_back({"", {rank}});
  }
  for (auto& domain : domains)
    std::sort(domain.ranks.begin(), domain.ranks.end());
  return domains;
}

// `domains` have any order; the ranks of each are ascending.
DomainMap map_of(std::vector<Domain> domains, std::size_t ranks, bool has_gpus) {
  std::ranges::sort(domains, {}, [](const Domain& domain) { return domain.ranks.front(); });
  DomainMap map{std::move(domains), std::vector<int>(ranks), has_gpus};
  for (std::size_t i = 0; i < map.domains.size(); ++i)
    for (const int rank : map.domains[i].ranks)
      map.domain_of[at(rank)] = static_cast<int>(i);
  return map;
}

// Shortens a UUID with many digits: "8f00.../32766".
std::string shortened(const std::string& clique) {
  constexpr std::size_t kDigits = 8;
  const auto slash = std::min(clique.find('/'), clique.size());
  return slash > 2 * kDigits ? clique.substr(0, kDigits) + ".." + clique.substr(slash) : clique;
}

std::string name_of(const Domain& domain, const std::vector<RankPlace>& places,
                    const std::map<std::string, std::size_t>& ranks_on) {
  const auto& first = places[at(domain.ranks.front())];
  const auto& last = places[at(domain.ranks.back())];
  if (!first.fabric_clique.empty())
    return str("NVLink clique ", shortened(first.fabric_clique),
               first.machine == last.machine ? str(" of host ", first.host)
                                             : str(" of hosts ", first.host, " to ", last.host));
  if (domain.ranks.size() == ranks_on.at(first.machine)) return "host " + first.host;
  std::vector<int> gpus;
  for (const int rank : domain.ranks)
    gpus.push_back(places[at(rank)].gpu);
  std::sort(gpus.begin(), gpus.end());
  return str(gpus.size() == 1 ? "GPU " : "GPUs ", cpu_list(gpus), " of host ", first.host);
}

Json::Array texts(const std::vector<std::string>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

Json to_json(const RankPlace& place) {
  return Json::Object{
      {"host", place.host},
      {"machine", place.machine},
      {"gpu", place.gpu},
      {"gpu_name", place.gpu_name},
      {"pci_address", place.pci_address},
      {"fabric_clique", place.fabric_clique},
      {"nvlink_peers", place.nvlink_peers ? Json(texts(*place.nvlink_peers)) : Json()},
      {"adapter", place.adapter},
      {"rail", place.rail},
      {"numa_node", place.numa_node},
      {"processors", cpu_list(place.processors)},
      {"processors_granted", place.processors_granted}};
}

RankPlace rank_place(const Json& json) {
  const auto number = [&](const char* key, int least) {
    return static_cast<int>(integer_at(json, key, least, INT_MAX));
  };
  RankPlace place{.host = text_at(json, "host"),
                  .machine = text_at(json, "machine"),
                  .gpu = number("gpu", -1),
                  .gpu_name = text_at(json, "gpu_name"),
                  .pci_address = text_at(json, "pci_address"),
                  .fabric_clique = text_at(json, "fabric_clique"),
                  .nvlink_peers = std::nullopt,
                  .adapter = text_at(json, "adapter"),
                  .rail = number("rail", -1),
                  .numa_node = number("numa_node", -1),
                  .processors = parse_cpu_list(text_at(json, "processors")),
                  .processors_granted = number("processors_granted", 1)};
  if (const auto& peers = json.at("nvlink_peers"); !peers.is_null()) {
    place.nvlink_peers.emplace();
    for (const auto& peer : peers.as_array())
      place.nvlink_peers->push_back(peer.as_string());
  }
  return place;
}

Topology topology_of(std::vector<RankPlace> places, SharedGpus shared) {
  if (shared == SharedGpus::refused) refuse_shared_gpus(places);
  std::map<std::string, std::size_t> ranks_on;
  for (const auto& place : places)
    ++ranks_on[place.machine];
  auto domains = find_domains(places);
  for (auto& domain : domains) {
    domain.name = name_of(domain, places, ranks_on);
    const auto& first = places[at(domain.ranks.front())];
    domain.links_unknown = first.gpu >= 0 && first.fabric_clique.empty() && !first.nvlink_peers &&
                           domain.ranks.size() < ranks_on.at(first.machine);
  }
  const bool has_gpus = places.front().gpu >= 0;
  return {map_of(std::move(domains), places.size(), has_gpus), std::move(places)};
}

DomainMap renumbered_domains(const DomainMap& map, const std::vector<int>& order) {
  std::vector<int> number(map.domain_of.size(), -1);  // new number of each rank
  int next = 0;
  for (const int rank : order)
    if (0 <= rank && at(rank) < number.size() && number[at(rank)] < 0) number[at(rank)] = next++;
  LOCKSTEP_CHECK(at(next) == number.size() && order.size() == number.size(), "expected each of ",
                 number.size(), " ranks once, got ", order.size(), " other values");
  auto domains = map.domains;
  for (auto& domain : domains) {
    for (int& rank : domain.ranks)
      rank = number[at(rank)];
    std::ranges::sort(domain.ranks);
  }
  return map_of(std::move(domains), order.size(), map.has_gpus);
}

Topology renumbered(const Topology& topology, const std::vector<int>& order) {
  Topology result{renumbered_domains(topology, order), {}};
  for (const int rank : order)
    result.places.push_back(topology.places[at(rank)]);
  return result;
}

std::vector<std::vector<int>> machines(const Topology& topology) {
  std::vector<std::vector<int>> all;
  std::map<std::string, std::size_t> numbers;  // index of each host in `all`
  for (std::size_t rank = 0; rank < topology.places.size(); ++rank) {
    const auto number = numbers.emplace(topology.places[rank].machine, all.size()).first->second;
    if (number == all.size()) all.emplace_back();
    all[number].push_back(static_cast<int>(rank));
  }
  return all;
}

int smallest_domain(const DomainMap& map) {
  const auto size = [](const Domain& domain) { return domain.ranks.size(); };
  return static_cast<int>(std::ranges::min(map.domains, {}, size).ranks.size());
}

int number_of_domains(const DomainMap& map, const std::vector<int>& ranks) {
  std::vector<char> seen;
  for (const int rank : ranks) {
    const auto domain = at(map.domain_of[at(rank)]);
    if (domain >= seen.size()) seen.resize(domain + 1);
    seen[domain] = 1;
  }
  return static_cast<int>(std::ranges::count(seen, 1));
}

std::vector<int> host_ranks(const Topology& topology, int rank) {
  const auto& machine = topology.places[at(rank)].machine;
  std::vector<int> ranks;
  for (std::size_t i = 0; i < topology.places.size(); ++i)
    if (topology.places[i].machine == machine) ranks.push_back(static_cast<int>(i));
  return ranks;
}

std::string hosts_in_words(const Topology& topology, const std::vector<int>& ranks) {
  std::vector<std::string> hosts;
  for (const int rank : ranks)
    if (const auto& host = topology.places.at(static_cast<std::size_t>(rank)).host;
        std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(host);
  std::string text = hosts.size() == 1 ? "host " : "hosts ";
  for (std::size_t i = 0; i < hosts.size(); ++i)
    text += (i == 0 ? "" : ", ") + hosts[i];
  return text;
}

std::string in_words(const Topology& topology) {
  const auto hosts = machines(topology).size();
  std::map<std::size_t, int, std::greater<>> sizes;
  int unknown = 0;
  for (const auto& domain : topology.domains) {
    ++sizes[domain.ranks.size()];
    unknown += domain.links_unknown ? 1 : 0;
  }
  auto text = str(topology.places.size(), topology.places.size() == 1 ? " rank on " : " ranks on ",
                  hosts, hosts == 1 ? " host" : " hosts");
  const char* separator =
      topology.has_gpus ? "; NVLink domains: " : "; no GPUs, so each host is a domain: ";
  for (const auto& [size, count] : sizes) {
    text += str(separator, count, " x ", size, size == 1 ? " rank" : " ranks");
    separator = ", ";
  }
  if (unknown > 0)
    text += str("; the NVLink peers of ", unknown, unknown == 1 ? " GPU" : " GPUs",
                " are unknown: each rank sees only its own GPU");
  return text;
}

}  // namespace lockstep
