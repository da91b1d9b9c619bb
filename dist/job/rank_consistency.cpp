#include "dist/job/rank_consistency.h"

#include <algorithm>
#include <map>

#include "core/system/machine.h"
#include "dist/job/frame.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostDifferences = 8, kMostNamed = 4;

// Fields of all ranks.
struct Said {
  std::vector<std::string> hosts;
  std::vector<std::string> names;  // of fields, in their order
  std::map<std::string, std::map<std::string, std::vector<int>>> values;  // name, value, ranks
};

Said read(const std::vector<std::string>& all) {
  Said said;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const Bytes bytes = as_bytes(all[r]);
    BodyReader reader(bytes);
    said.hosts.push_back(reader.text());
    while (!reader.at_end()) {
      const auto name = reader.text();
      if (!said.values.contains(name)) said.names.push_back(name);
      said.values[name][reader.text()].push_back(static_cast<int>(r));
    }
  }
  return said;
}

std::string with_hosts(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  if (ranks.size() > kMostNamed) return rank_list(ranks);
  std::string text;
  for (const int rank : ranks)
    text += str(text.empty() ? "" : ", ", "rank ", rank, " (host ",
                hosts[static_cast<std::size_t>(rank)], ")");
  return text;
}

// "200 on rank 3 (host n2), 100 on ranks 0-2, 4"; empty if all ranks have one value.
std::string difference(const std::map<std::string, std::vector<int>>& values,
                       const std::vector<std::string>& hosts) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  std::vector<int> without;
  for (std::size_t r = 0; r < hosts.size(); ++r)
    without.push_back(static_cast<int>(r));
  for (const auto& [value, ranks] : values) {
    groups.emplace_back(value.empty() ? "empty" : value, ranks);
    for (const int rank : ranks)
      std::erase(without, rank);
  }
  if (!without.empty()) groups.emplace_back("not set", without);
  if (groups.size() == 1) return "";
  // The smallest groups first: they are probably wrong.
  std::stable_sort(groups.begin(), groups.end(),
                   [](auto& a, auto& b) { return a.second.size() < b.second.size(); });
  std::string text;
  for (const auto& [value, ranks] : groups)
    text += str(text.empty() ? "" : ", ", value, " on ", with_hosts(ranks, hosts));
  return text;
}

}  // namespace

void agree(World& world, const std::string& what, const Fields& mine) {
  BodyWriter writer;
  writer.text(host_name());
  for (const auto& [name, value] : mine)
    writer.text(name).text(value);
  const Said said = read(world.exchange(as_text(writer.take())));
  std::string text;
  std::size_t differing = 0;
  for (const auto& name : said.names) {
    const auto of_name = difference(said.values.at(name), said.hosts);
    if (of_name.empty() || ++differing > kMostDifferences) continue;
    text += str(text.empty() ? "" : "; ", name, " is ", of_name);
  }
  if (differing == 0) return;
  if (differing > kMostDifferences) text += str("; and ", differing - kMostDifferences, " more");
  throw ConfigError(str("the ranks differ in their ", what, ": ", text,
                        "; start all ranks with the same values"));
}

std::string rank_file(int rank, const char* extension) {
  const auto digits = std::to_string(rank);
  return str("rank-", std::string(5 - std::min<std::size_t>(5, digits.size()), '0'), digits,
             extension);
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string list = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1)
      ++end;
    list += str(i == 0 ? "" : ", ", ranks[i]);
    if (end - i > 1) list += str(end - i > 2 ? "-" : ", ", ranks[end - 1]);
    i = end;
  }
  return list;
}

}  // namespace lockstep
