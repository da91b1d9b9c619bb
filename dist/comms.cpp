#include "dist/comms.h"

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

// Of each domain the members of `ranks` in their order; one list of all where those of a domain are
// no neighbours, or domains differ in size.
std::vector<std::vector<int>> by_domain(const std::vector<int>& ranks,
                                        const std::vector<int>& domains) {
  if (domains.empty()) return {ranks};
  std::vector<std::vector<int>> parts;
  std::map<int, std::size_t> seen;
  for (const int rank : ranks) {
    const int domain = domains[static_cast<std::size_t>(rank)];
    const bool same =
        !parts.empty() && domains[static_cast<std::size_t>(parts.back().front())] == domain;
    if (!same && !seen.emplace(domain, parts.size()).second) return {ranks};
    if (!same) parts.emplace_back();
    parts.back().push_back(rank);
  }
  for (const auto& part : parts)
    if (part.size() != parts.front().size()) return {ranks};
  return parts;
}

Levels make_levels(World& world, const std::string& name, const std::vector<int>& ranks,
                   const std::vector<int>& domains) {
  const auto parts = by_domain(ranks, domains);
  const auto place = std::find(ranks.begin(), ranks.end(), world.rank()) - ranks.begin();
  const auto I = static_cast<std::ptrdiff_t>(parts.front().size());
  std::vector<int> across;
  for (const auto& part : parts)
    across.push_back(part[static_cast<std::size_t>(place % I)]);
  Levels levels;
  levels.whole = world.connect(name, ranks);
  levels.inside = world.connect(name + " inside", parts[static_cast<std::size_t>(place / I)]);
  levels.across = world.connect(name + " across", across);
  return levels;
}

}  // namespace

std::unique_ptr<Communicator> LoneWorld::connect(const std::string& name,
                                                 const std::vector<int>& ranks) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
  return std::make_unique<LoneCommunicator>(name, static_cast<int>(place),
                                            static_cast<int>(ranks.size()));
}

Comms make_comms(World& world, const Mesh& mesh, const std::vector<int>& domains) {
  LOCKSTEP_CHECK(mesh.world() == world.size(), "a mesh of ", mesh.world(), " ranks, but there are ",
                 world.size());
  LOCKSTEP_CHECK(domains.empty() || static_cast<int>(domains.size()) == world.size(), "domains of ",
                 domains.size(), " ranks, but there are ", world.size());
  const int rank = world.rank();
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  for (std::size_t r = 0; r < all.size(); ++r)
    all[r] = static_cast<int>(r);
  Comms comms;
  comms.world = &world;
  comms.mesh = mesh;
  comms.all = world.connect("all ranks", all);
  comms.tensor = world.connect("tensor", mesh.peers(Axis::tensor, rank));
  comms.gathers = world.connect("shard gathers", mesh.peers(Axis::shard, rank));
  comms.shard = make_levels(world, "shard scatters", mesh.peers(Axis::shard, rank), domains);
  comms.replicate =
      make_levels(world, "replicate sums", mesh.peers(Axis::replicate, rank), domains);
  return comms;
}

Comms make_comms() {
  auto alone = std::make_unique<LoneWorld>();
  Comms comms = make_comms(*alone, Mesh{});
  comms.own_world = std::move(alone);
  return comms;
}

}  // namespace lockstep
