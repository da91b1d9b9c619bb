#include "dist/job/rank_consistency.h"

#include <algorithm>
#include <map>

#include "core/hash.h"
#include "core/system/machine.h"
#include "dist/job/frame.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostDifferences = 8, kMostNamed = 4, kMostValues = 8, kMostRuns = 16;

using Values = std::map<std::string, std::vector<int>>;  // value, ranks

std::string with_hosts(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  if (ranks.size() > kMostNamed) return rank_list(ranks);
  std::string text;
  for (const int rank : ranks)
    text += str(text.empty() ? "" : ", ", "rank ", rank, " (host ",
                hosts[static_cast<std::size_t>(rank)], ")");
  return text;
}

// "200 on rank 3 (host n2), 100 on ranks 0-2, 4"; empty if all ranks have one value.
std::string difference(const Values& values, const std::vector<std::string>& hosts) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  std::vector<bool> has(hosts.size());
  for (const auto& [value, ranks] : values) {
    groups.emplace_back(value.empty() ? "empty" : value, ranks);
    for (const int rank : ranks)
      has[static_cast<std::size_t>(rank)] = true;
  }
  std::vector<int> without;
  for (std::size_t r = 0; r < has.size(); ++r)
    if (!has[r]) without.push_back(static_cast<int>(r));
  if (!without.empty()) groups.emplace_back("not set", without);
  if (groups.size() == 1) return "";
  // The smallest groups first: they are probably wrong.
  std::stable_sort(groups.begin(), groups.end(),
                   [](auto& a, auto& b) { return a.second.size() < b.second.size(); });
  std::string text;
  for (const auto& [value, ranks] : std::span(groups).first(std::min(groups.size(), kMostValues)))
    text += str(text.empty() ? "" : ", ", value, " on ", with_hosts(ranks, hosts));
  if (groups.size() > kMostValues)
    text += str(" and ", groups.size() - kMostValues, " more values");
  return text;
}

// The differences in the fields of all ranks, as encoded by agree().
std::string differences(const std::vector<std::string>& fields_of_ranks,
                        const std::vector<std::string>& hosts) {
  Values ranks_with;  // fields, ranks that have them
  for (std::size_t r = 0; r < fields_of_ranks.size(); ++r)
    ranks_with[fields_of_ranks[r]].push_back(static_cast<int>(r));
  std::vector<std::string> names;  // in the order of the fields
  std::map<std::string, Values> values;
  for (const auto& [fields, ranks] : ranks_with) {
    const Bytes bytes = as_bytes(fields);
    for (BodyReader reader(bytes); !reader.at_end();) {
      const auto name = reader.text();
      if (!values.contains(name)) names.push_back(name);
      auto& with = values[name][reader.text()];
      with.insert(with.end(), ranks.begin(), ranks.end());
    }
  }
  for (auto& [name, of_name] : values)
    for (auto& [value, ranks] : of_name)
      std::sort(ranks.begin(), ranks.end());
  std::string text;
  std::size_t differing = 0;
  for (const auto& name : names) {
    const auto of_name = difference(values.at(name), hosts);
    if (of_name.empty() || ++differing > kMostDifferences) continue;
    text += str(text.empty() ? "" : "; ", name, " is ", of_name);
  }
  if (differing > kMostDifferences) text += str("; and ", differing - kMostDifferences, " more");
  return text;
}

}  // namespace

void agree(World& world, const std::string& what, const Fields& mine) {
  BodyWriter writer;
  for (const auto& [name, value] : mine)
    writer.text(name).text(value);
  const std::string fields = as_text(writer.take());
  const auto hashes = world.exchange(hash_hex(fields));
  if (std::ranges::all_of(hashes, [&](auto& hash) { return hash == hashes.front(); })) return;
  throw ConfigError(str("the ranks differ in their ", what, ": ",
                        differences(world.exchange(fields), world.exchange(host_name())),
                        "; start all ranks with the same values"));
}

std::string rank_file(int rank, const char* extension) {
  const auto digits = std::to_string(rank);
  return str("rank-", std::string(5 - std::min<std::size_t>(5, digits.size()), '0'), digits,
             extension);
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string list = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t runs = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    if (++runs > kMostRuns) return str(list, " and ", ranks.size() - i, " more");
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
