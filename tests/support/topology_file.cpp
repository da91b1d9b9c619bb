#include "tests/support/topology_file.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "core/file.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostBytes = 1 << 20, kMostRanksOnHost = 1024, kMostHosts = 1 << 16,
                       kMostRanksOfFile = 1 << 17;

void expect_keys(const Json& object, std::initializer_list<std::string_view> expected) {
  for (const auto& [key, value] : object.as_object()) {
    if (std::find(expected.begin(), expected.end(), key) != expected.end()) continue;
    std::string list;
    for (const auto name : expected)
      list += str(list.empty() ? "\"" : ", \"", name, "\"");
    throw DataError(str("the key \"", key, "\" is unknown, expected one of ", list));
  }
}

int number_or(const Json& object, const char* key, int otherwise, std::int64_t least,
              std::int64_t most) {
  if (object.find(key) == nullptr) return otherwise;
  return static_cast<int>(integer_at(object, key, least, most));
}

std::string text_or_none(const Json& object, const char* key) {
  if (object.find(key) == nullptr) return "";
  const auto& text = text_at(object, key);
  if (text.empty()) throw DataError(str('"', key, "\" is \"\", expected a name"));
  return text;
}

// GPU i of a host is at the address of bus i.
std::string address_of(int gpu) {
  constexpr const char* kHex = "0123456789abcdef";
  std::string domain;
  for (const int digit : {gpu >> 8 & 15, gpu >> 4 & 15, gpu & 15})
    domain += kHex[digit];
  return str("0", domain, ":01:00.0");
}

// The group of linked GPUs of each rank of the host. "nvlink" is "all" (or absent), "none", or
// groups of GPUs, [[0, 1], [2, 3]]; GPUs in no group have no links.
std::vector<int> linked_groups(const Json& host, int ranks) {
  std::vector<int> group_of(static_cast<std::size_t>(ranks), 0);
  const Json* nvlink = host.find("nvlink");
  if (nvlink == nullptr || (nvlink->is_string() && nvlink->as_string() == "all")) return group_of;
  for (std::size_t i = 0; i < group_of.size(); ++i)
    group_of[i] = -1 - static_cast<int>(i);  // without links
  if (nvlink->is_string() && nvlink->as_string() == "none") return group_of;
  if (!nvlink->is_array())
    throw DataError(str("\"nvlink\" is ", nvlink->dump(),
                        ", expected \"all\", \"none\", or groups of GPUs like [[0, 1], [2, 3]]"));
  int number = 0;
  for (const auto& group : nvlink->as_array()) {
    ++number;
    if (!group.is_array())
      throw DataError(str("\"nvlink\" has ", group.dump(), ", expected a list of GPUs"));
    for (const auto& gpu : group.as_array()) {
      if (!gpu.is_integer() || gpu.as_integer() < 0 || gpu.as_integer() >= ranks)
        throw DataError(str("\"nvlink\" has the GPU ", gpu.dump(), ", expected 0 to ", ranks - 1));
      auto& its = group_of[static_cast<std::size_t>(gpu.as_integer())];
      if (its > 0) throw DataError(str("\"nvlink\" has the GPU ", gpu.dump(), " twice"));
      its = number;
    }
  }
  return group_of;
}

// The ranks of the hosts of one entry, `name` not yet set.
std::vector<RankPlace> ranks_of(const Json& host) {
  const int ranks = static_cast<int>(integer_at(host, "ranks", 1, kMostRanksOnHost));
  const auto gpu = text_or_none(host, "gpu"), fabric = text_or_none(host, "fabric");
  for (const char* key : {"nvlink", "fabric", "adapters"})
    if (gpu.empty() && host.find(key) != nullptr)
      throw DataError(str('"', key, "\" is of GPUs, expected \"gpu\" with their name too"));
  if (!fabric.empty() && host.find("nvlink") != nullptr)
    throw DataError("\"nvlink\" and \"fabric\" are both there, expected one of them");
  const int adapters = number_or(host, "adapters", 0, 1, ranks);
  const int nodes = number_or(host, "numa_nodes", 0, 1, ranks);
  const auto group_of = linked_groups(host, ranks);
  std::vector<RankPlace> places(static_cast<std::size_t>(ranks));
  for (int i = 0; i < ranks; ++i) {
    auto& place = places[static_cast<std::size_t>(i)];
    if (nodes > 0) place.numa_node = i * nodes / ranks;
    if (gpu.empty()) continue;
    place.gpu = i;
    place.gpu_name = gpu;
    place.pci_address = address_of(i);
    place.fabric_clique = fabric;
    place.nvlink_peers.emplace();
    for (int j = 0; j < ranks; ++j)
      if (j != i && group_of[static_cast<std::size_t>(j)] == group_of[static_cast<std::size_t>(i)])
        place.nvlink_peers->push_back(address_of(j));
    if (adapters == 0) continue;
    place.rail = i * adapters / ranks;
    place.adapter = str("adapter ", place.rail);
  }
  return places;
}

void add_hosts(const Json& host, std::vector<RankPlace>& all, std::set<std::string>& names) {
  expect_keys(host,
              {"name", "count", "ranks", "gpu", "nvlink", "fabric", "adapters", "numa_nodes"});
  const auto name = text_or_none(host, "name");
  if (name.empty()) host.at("name");  // throws that it is missing
  const int count = number_or(host, "count", 0, 1, kMostHosts);
  const auto ranks = ranks_of(host);
  for (int i = 1; i <= std::max(count, 1); ++i) {
    const auto host_name = count > 0 ? str(name, i) : name;
    if (!names.insert(host_name).second)
      throw DataError(str("the host \"", host_name, "\" occurs twice"));
    if (all.size() + ranks.size() > kMostRanksOfFile)
      throw DataError(str("these are more than ", kMostRanksOfFile, " ranks in all"));
    for (auto place : ranks) {
      place.host = place.machine = host_name;
      all.push_back(std::move(place));
    }
  }
}

}  // namespace

std::vector<RankPlace> pretend_cluster_of(std::string_view text, const std::string& file) {
  const auto json = Json::parse(text, file);
  std::vector<RankPlace> all;
  std::set<std::string> names;
  in_context(
      [&] {
        if (!json.is_object()) throw DataError("expected an object with \"hosts\"");
        expect_keys(json, {"hosts"});
        if (!json.at("hosts").is_array() || json.at("hosts").as_array().empty())
          throw DataError("\"hosts\" is not a list of hosts, expected at least one");
        int number = 0;
        for (const auto& host : json.at("hosts").as_array())
          in_context([&] { add_hosts(host, all, names); }, "hosts[", number++, "]");
      },
      file);
  return all;
}

std::vector<RankPlace> pretend_cluster(const std::filesystem::path& file) {
  return pretend_cluster_of(read_text(file, kMostBytes), file.string());
}

}  // namespace lockstep
