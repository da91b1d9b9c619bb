#include "dist/topology/topology_placement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "core/affinity.h"

namespace lockstep {
namespace {

using Ranks = std::vector<int>;
using Seats = std::vector<int>;  // numbered domain by domain

const RankPlace& place_of(const Topology& topology, int rank) {
  return topology.places[static_cast<std::size_t>(rank)];
}

// Whether hosts with the same number of ranks have the same rails in the order of their ranks.
bool rails_agree(const Topology& topology) {
  std::map<std::string, std::vector<int>> rails;
  for (const auto& place : topology.places)
    rails[place.machine].push_back(place.rail);
  std::map<std::size_t, std::vector<int>> expected;
  return std::all_of(rails.begin(), rails.end(), [&](const auto& machine) {
    return expected.emplace(machine.second.size(), machine.second).first->second == machine.second;
  });
}

// Ranks of the domain in the order in which they take places.
Ranks seated(const Topology& topology, const Domain& domain, bool as_launched) {
  std::map<std::string, int> first_rank;
  for (const int rank : domain.ranks)
    first_rank.emplace(place_of(topology, rank).machine, rank);
  const auto key = [&](int rank) {
    const auto& place = place_of(topology, rank);
    return std::tuple(first_rank.at(place.machine), as_launched ? 0 : place.rail,
                      as_launched ? std::string() : place.pci_address, rank);
  };
  auto ranks = domain.ranks;
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) { return key(a) < key(b); });
  return ranks;
}

void append(Ranks& to, const Ranks& from, std::size_t begin, std::size_t count) {
  const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
  to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(count));
}

// Cuts domains, each a multiple of `tensor` seats, into groups of `shard` x `tensor`.
class Cutter {
 public:
  Cutter(std::size_t shard, std::size_t tensor) : shard_(shard), tensor_(tensor) {}

  // Cuts domains of one size. With u tensor groups in each and e = gcd(u, shard), a group is e of
  // them at one place of shard / e domains. The remaining domains are cut later.
  void cut_alike(const std::vector<Seats>& domains) {
    const auto units = domains.front().size() / tensor_;
    const auto piece = std::gcd(units, shard_), wide = shard_ / piece;
    LOCKSTEP_CHECK(wide > 0, "expected at least one rank in a shard axis, got ", shard_);
    const auto whole = domains.size() / wide * wide;
    for (std::size_t block = 0; block < whole; block += wide)
      for (std::size_t unit = 0; unit < units; unit += piece) {
        Seats group;
        for (std::size_t i = block; i < block + wide; ++i)
          append(group, domains[i], unit * tensor_, piece * tensor_);
        groups_.push_back(std::move(group));
      }
    rest_.insert(rest_.end(), domains.begin() + static_cast<std::ptrdiff_t>(whole), domains.end());
  }

  // All seats in the order of places; groups are sorted by their first seats.
  Seats order() && {
    const auto size = shard_ * tensor_;
    Seats tails;
    std::sort(rest_.begin(), rest_.end());
    for (const auto& domain : rest_) {
      std::size_t used = 0;
      for (; used + size <= domain.size(); used += size)
        append(groups_.emplace_back(), domain, used, size);
      append(tails, domain, used, domain.size() - used);
    }
    for (std::size_t used = 0; used < tails.size(); used += size)
      append(groups_.emplace_back(), tails, used, size);
    std::sort(groups_.begin(), groups_.end());
    Seats order;
    for (const auto& group : groups_)
      append(order, group, 0, group.size());
    return order;
  }

 private:
  std::size_t shard_, tensor_;
  std::vector<Seats> groups_;  // seats of each group in the order of places
  std::vector<Seats> rest_;    // domains that no group was cut from
};

std::string in_words(const Domain& domain, bool has_gpus) {
  const auto count = domain.ranks.size();
  return str(domain.name, " has ", count, has_gpus ? " GPU" : " rank", count == 1 ? " (" : "s (",
             count == 1 ? "rank " : "ranks ", cpu_list(domain.ranks),
             domain.links_unknown ? "; it sees no other GPU)" : ")");
}

// Divisors of n: "1, 2 or 4".
std::string divisors(std::size_t n) {
  std::string text = "1";
  for (std::size_t i = 2; i <= n; ++i)
    if (n % i == 0) text += str(i == n ? " or " : ", ", i);
  return text;
}

[[noreturn]] void refuse(const DomainMap& map, std::size_t tensor) {
  constexpr std::size_t kNamed = 4;
  std::vector<std::string> named;
  std::size_t common = 0, unfit = 0;
  for (const auto& domain : map.domains) {
    common = std::gcd(common, domain.ranks.size());
    if (domain.ranks.size() % tensor == 0 || unfit++ >= kNamed) continue;
    named.push_back(in_words(domain, map.has_gpus));
  }
  std::string text;
  for (const auto& domain : named)
    text += (text.empty() ? "" : ", ") + domain;
  if (unfit > kNamed) text += str(", and ", unfit - kNamed, " more domains");
  throw ConfigError(str("layout.tensor = ", tensor, " does not fit into the ",
                        map.has_gpus ? "NVLink domains: " : "hosts: ", text, "; use ",
                        divisors(common), ", or --allow-tensor-across-nodes"));
}

// seats: ranks of each domain in the order in which they take places
std::vector<int> place(const Mesh& mesh, const DomainMap& map, const std::vector<Ranks>& seats,
                       TensorAcross across) {
  if (mesh.world() != static_cast<int>(map.domain_of.size())) {
    std::string sizes;
    for (int i = 0; i < kAxes; ++i)
      sizes += str(i == 0 ? "" : " x ", name(static_cast<Axis>(i)), " ",
                   mesh.size(static_cast<Axis>(i)));
    throw ConfigError(str("the layout ", sizes, " needs ", mesh.world(), " ranks, but ",
                          map.domain_of.size(), " were launched"));
  }
  const auto tensor = static_cast<std::size_t>(mesh.size(Axis::tensor));
  const auto shard = static_cast<std::size_t>(mesh.size(Axis::shard));
  Ranks by_seat;
  std::set<std::size_t> sizes;
  for (const auto& ranks : seats) {
    append(by_seat, ranks, 0, ranks.size());
    sizes.insert(ranks.size());
  }
  const bool fits = std::ranges::all_of(sizes, [&](auto size) { return size % tensor == 0; });
  if (!fits && across == TensorAcross::refused) refuse(map, tensor);
  // Groups that divide a domain, or whole domains that divide a group, take seats in order.
  const auto group = shard * tensor, size = *sizes.begin();
  if (!fits || (sizes.size() == 1 && (size % group == 0 || group % size == 0))) return by_seat;
  std::map<std::size_t, std::vector<Seats>> by_size;
  int seat = 0;
  for (const auto& ranks : seats) {
    auto& its = by_size[ranks.size()].emplace_back(ranks.size());
    std::iota(its.begin(), its.end(), seat);
    seat += static_cast<int>(ranks.size());
  }
  Cutter cutter(shard, tensor);
  for (const auto& [of, domains] : by_size)
    cutter.cut_alike(domains);
  auto order = std::move(cutter).order();
  for (int& at : order)
    at = by_seat[static_cast<std::size_t>(at)];
  return order;
}

}  // namespace

std::vector<int> placement(const Mesh& mesh, const Topology& topology, TensorAcross across) {
  const bool as_launched = rails_agree(topology);
  std::vector<Ranks> seats;
  for (const auto& domain : topology.domains)
    seats.push_back(seated(topology, domain, as_launched));
  return place(mesh, topology, seats, across);
}

std::vector<int> placement_as_launched(const Mesh& mesh, const DomainMap& map,
                                       TensorAcross across) {
  std::vector<Ranks> seats;
  for (const auto& domain : map.domains)
    seats.push_back(domain.ranks);
  return place(mesh, map, seats, across);
}

std::vector<int> TwoLevels::inside(int rank) const {
  for (const auto& row : domains)
    if (std::find(row.begin(), row.end(), rank) != row.end()) return row;
  LOCKSTEP_FAIL("rank ", rank, " is not in the group");
}

std::vector<int> TwoLevels::across(int rank) const {
  const auto row = inside(rank);
  const auto place =
      static_cast<std::size_t>(std::find(row.begin(), row.end(), rank) - row.begin());
  std::vector<int> column;
  for (const auto& other : domains)
    column.push_back(other[place]);
  return column;
}

TwoLevels two_levels(const DomainMap& map, std::span<const int> group) {
  std::vector<int> row_of;  // of each domain
  TwoLevels levels;
  for (const int rank : group) {
    const auto domain = static_cast<std::size_t>(map.domain_of[static_cast<std::size_t>(rank)]);
    if (domain >= row_of.size()) row_of.resize(domain + 1, -1);
    int& row = row_of[domain];
    if (row < 0) {
      row = static_cast<int>(levels.domains.size());
      levels.domains.emplace_back();
    }
    levels.domains[static_cast<std::size_t>(row)].push_back(rank);
  }
  const auto even = [&](const Ranks& row) { return row.size() == levels.domains.front().size(); };
  if (std::all_of(levels.domains.begin(), levels.domains.end(), even)) return levels;
  levels.domains.clear();
  for (const int rank : group)
    levels.domains.push_back({rank});
  return levels;
}

}  // namespace lockstep
