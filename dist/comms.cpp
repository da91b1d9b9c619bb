#include "dist/comms.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/system/interfaces.h"
#include "dist/collective_ring.h"
#include "dist/topology/topology_placement.h"

namespace lockstep {
namespace {

// Rows of `ranks`, one per domain, which together are `ranks` in order: a reduction finds the piece
// of a rank by its place.
TwoLevels levels_of(const DomainMap* topology, const std::vector<int>& ranks) {
  if (topology == nullptr) return {{ranks}};
  auto levels = two_levels(*topology, ranks);
  std::vector<int> all;
  for (const auto& row : levels.domains)
    all.insert(all.end(), row.begin(), row.end());
  if (all == ranks) return levels;
  levels.domains.clear();
  for (const int rank : ranks)
    levels.domains.push_back({rank});
  return levels;
}

// The purposes of the groups of Levels.
struct LevelGroups {
  Group whole, inside, across;
};

// Connects the groups of a rank.
struct Connector {
  World& world;
  const DomainMap* topology;

  std::unique_ptr<Communicator> connect(Group group, const std::string& name,
                                        const std::vector<int>& ranks) const {
    auto communicator =
        world.connect({.name = name,
                       .ranks = ranks,
                       .carries = group == Group::all ? Carries::numbers : Carries::tensors,
                       .group = group,
                       .domains = topology == nullptr ? 1 : number_of_domains(*topology, ranks)});
    communicator->belongs_to(group, ranks);
    return communicator;
  }

  // Connects a group whose calls are entries of the world's ring.
  std::unique_ptr<Communicator> connect_recorded(Group group, const std::string& name,
                                                 const std::vector<int>& ranks) const {
    auto communicator = connect(group, name, ranks);
    communicator->record_in(world.ring());
    return communicator;
  }

  // A group that no call needs.
  std::unique_ptr<Communicator> alone(Group group, const std::string& name) const {
    auto communicator = std::make_unique<LoneCommunicator>(name, 0, 1);
    communicator->belongs_to(group, {world.rank()});
    return communicator;
  }

  // A sum on two levels is one entry of the ring, whatever its levels do.
  //   gathers: all ranks get the sums
  Levels make_levels(const LevelGroups& groups, const std::string& name,
                     const std::vector<int>& ranks, Reduce reduce, bool gathers) const {
    Levels levels;
    levels.name = name;
    levels.ring = world.ring();
    levels.domains = topology == nullptr ? 1 : number_of_domains(*topology, ranks);
    const bool by_library = reduce == Reduce::nccl;
    const auto table = levels_of(topology, ranks);
    const auto level = [&](Group group, const std::string& part, const std::vector<int>& members) {
      return by_library ? alone(group, name + part) : connect(group, name + part, members);
    };
    levels.inside = level(groups.inside, " inside", table.inside(world.rank()));
    levels.across = level(groups.across, " across", table.across(world.rank()));
    levels.whole = gathers || by_library ? connect_recorded(groups.whole, name, ranks)
                                         : alone(groups.whole, name);
    return levels;
  }
};

}  // namespace

std::vector<std::string> World::gather(const std::string& tag, const std::string& mine) {
  if (size() == 1) return {mine};
  LOCKSTEP_FAIL("'", tag, "': these ranks have no messages beside training");
}

std::string World::broadcast(const std::string& tag, const std::string& text) {
  if (size() == 1) return text;
  LOCKSTEP_FAIL("'", tag, "': these ranks have no messages beside training");
}

std::vector<std::string> World::addresses() const {
  return local_addresses();
}

void World::end_all(const std::string& why, int exit_code) {
  if (size() == 1) return;
  if (rank() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  abort(why, exit_code);
}

std::unique_ptr<Communicator> LoneWorld::connect(const GroupConfig& group) {
  const auto place = std::find(group.ranks.begin(), group.ranks.end(), rank_);
  return std::make_unique<LoneCommunicator>(group.name,
                                            static_cast<int>(place - group.ranks.begin()),
                                            static_cast<int>(group.ranks.size()));
}

std::vector<std::string> LoneWorld::exchange(const std::string& mine) {
  return std::vector<std::string>(static_cast<std::size_t>(size_), mine);
}

PlacedWorld::PlacedWorld(World& launched, std::vector<int> order)
    : launched_(launched), order_(std::move(order)) {
  const auto place = std::find(order_.begin(), order_.end(), launched.rank());
  LOCKSTEP_CHECK(place != order_.end() && std::ssize(order_) == launched.size(), "rank ",
                 launched.rank(), " has no place among ", order_.size());
  rank_ = static_cast<int>(place - order_.begin());
}

std::unique_ptr<Communicator> PlacedWorld::connect(const GroupConfig& group) {
  std::vector<int> as_launched;
  for (const int rank : group.ranks)
    as_launched.push_back(order_[static_cast<std::size_t>(rank)]);
  auto launched = group;
  launched.ranks = std::move(as_launched);
  return launched_.connect(launched);
}

std::vector<std::string> PlacedWorld::exchange(const std::string& mine) {
  const auto launched = launched_.exchange(mine);
  std::vector<std::string> placed;
  for (const int rank : order_)
    placed.push_back(launched[static_cast<std::size_t>(rank)]);
  return placed;
}

bool runs_beside(Group group, Device device) {
  if (group == Group::tensor) return device.kind == Device::Kind::cuda;
  return group != Group::all && group != Group::other;
}

Comms make_comms(World& world, const Mesh& mesh, const DomainMap* topology, Reduce reduce) {
  LOCKSTEP_CHECK(mesh.world() == world.size(), "a mesh of ", mesh.world(), " ranks, but there are ",
                 world.size());
  const int rank = world.rank();
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  for (std::size_t r = 0; r < all.size(); ++r)
    all[r] = static_cast<int>(r);
  Comms comms;
  comms.world = &world;
  comms.mesh = mesh;
  comms.reduce = reduce;
  const Connector make{world, topology};
  comms.all = make.connect_recorded(Group::all, "all ranks", all);
  comms.tensor = make.connect_recorded(Group::tensor, "tensor", mesh.peers(Axis::tensor, rank));
  const auto shards = mesh.peers(Axis::shard, rank);
  comms.gathers = make.connect_recorded(Group::gathers, "shard gathers", shards);
  comms.shard = make.make_levels({Group::shard, Group::shard_inside, Group::shard_across},
                                 "shard scatters", shards, reduce, /*gathers=*/false);
  const auto copies = mesh.peers(Axis::replicate, rank);
  comms.replicate =
      make.make_levels({Group::replicate, Group::replicate_inside, Group::replicate_across},
                       "replicate sums", copies, reduce, /*gathers=*/true);
  return comms;
}

Comms make_comms() {
  auto alone = std::make_unique<LoneWorld>();
  Comms comms = make_comms(*alone, Mesh{});
  comms.own_world = std::move(alone);
  return comms;
}

}  // namespace lockstep
