#include "dist/topology/topology_placement.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "core/philox.h"
#include "tests/support/topology_file.h"
#include "tests/wording.h"

namespace lockstep::testing::topology_placement_test {

Topology cluster(const std::string& name) {
  return topology_of(pretend_cluster(std::string(LOCKSTEP_CLUSTERS) + "/" + name + ".json"));
}

// Hosts with `gpus` GPUs and rails each.
Topology hosts_of(const std::vector<int>& gpus) {
  std::string hosts;
  for (std::size_t i = 0; i < gpus.size(); ++i)
    hosts += str(i == 0 ? "" : ", ", R"({"name": "n)", i + 1, R"(", "gpu": "X", "ranks": )",
                 gpus[i], R"(, "adapters": )", gpus[i], "}");
  return topology_of(pretend_cluster_of(str(R"({"hosts": [)", hosts, "]}"), "hosts"));
}

std::vector<int> in_turn(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Topology shuffled(const Topology& topology, std::uint64_t seed) {
  auto order = in_turn(static_cast<int>(topology.places.size()));
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[philox(seed, 1, i)[0] % i]);
  return renumbered(topology, order);
}

// Peers of a rank, by the name of the group.
struct Group {
  const char* name;
  std::vector<int> ranks;
};
std::vector<Group> data_groups(const Mesh& mesh, int rank) {
  return {{"replicate", mesh.peers(Axis::replicate, rank)},
          {"shard", mesh.peers(Axis::shard, rank)}};
}

std::string in_words(const Mesh& mesh, const Topology& topology) {
  std::string text = str(mesh.replicate, " x ", mesh.shard, " x ", mesh.tensor, " in domains of");
  for (const auto& domain : topology.domains)
    text += str(" ", domain.ranks.size());
  return text;
}

// Checks every mesh that fits: each rank has one place, tensor peers share a domain, and all ranks
// of a group compute the same two levels.
Topology place_and_check(const Mesh& mesh, const Topology& launched) {
  SCOPED_TRACE(in_words(mesh, launched));
  const auto order = placement(mesh, launched);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, in_turn(mesh.world()));
  auto placed = renumbered(launched, order);
  const auto domain = [&](int rank) { return placed.domain_of[static_cast<std::size_t>(rank)]; };
  for (int rank = 0; rank < mesh.world(); ++rank) {
    for (const int peer : mesh.peers(Axis::tensor, rank))
      EXPECT_EQ(domain(peer), domain(rank)) << "tensor ranks " << rank << " and " << peer;
    for (const auto& group : data_groups(mesh, rank)) {
      const auto levels = two_levels(placed, group.ranks);
      const auto inside = levels.inside(rank), across = levels.across(rank);
      EXPECT_EQ(inside.size() * across.size(), group.ranks.size()) << group.name;
      for (const int peer : inside)
        EXPECT_EQ(domain(peer), domain(rank)) << group.name;
      std::set<int> all;
      for (const int peer : across) {
        const auto row = levels.inside(peer);
        all.insert(row.begin(), row.end());
      }
      EXPECT_EQ(all, std::set<int>(group.ranks.begin(), group.ranks.end())) << group.name;
    }
  }
  return placed;
}

// Checks meshes on domains of one size: every group has the same number of ranks in each domain
// that it touches, as many as possible along shard, and traffic between domains stays on one rail.
void check_alike(const Mesh& mesh, const Topology& launched) {
  const auto placed = place_and_check(mesh, launched);
  const auto units =
      launched.domains.front().ranks.size() / static_cast<std::size_t>(mesh.size(Axis::tensor));
  for (int rank = 0; rank < mesh.world(); ++rank)
    for (const auto& group : data_groups(mesh, rank)) {
      const auto levels = two_levels(placed, group.ranks);
      std::set<int> touched;
      for (const int peer : group.ranks)
        touched.insert(placed.domain_of[static_cast<std::size_t>(peer)]);
      ASSERT_EQ(levels.domains.size(), touched.size()) << group.name << ": one level";
      if (group.name == std::string("shard")) {
        EXPECT_EQ(levels.inside(rank).size(), std::gcd(units, group.ranks.size()));
      }
      for (const int peer : levels.across(rank))
        EXPECT_EQ(placed.places[static_cast<std::size_t>(peer)].rail,
                  placed.places[static_cast<std::size_t>(rank)].rail)
            << group.name;
    }
}

std::vector<Mesh> meshes_of(int ranks) {
  std::vector<Mesh> meshes;
  for (int tensor = 1; tensor <= ranks; ++tensor)
    for (int shard = 1; shard * tensor <= ranks; ++shard)
      if (ranks % (shard * tensor) == 0)
        meshes.push_back({ranks / (shard * tensor), shard, tensor});
  return meshes;
}

TEST(Placement, every_mesh_of_up_to_64_ranks_fits_into_domains_that_its_tensor_axis_divides) {
  int fit = 0, refused = 0;
  for (int ranks = 1; ranks <= 64; ++ranks)
    for (int host = 1; host <= ranks; ++host) {
      if (ranks % host != 0) continue;
      const auto launched =
          hosts_of(std::vector<int>(static_cast<std::size_t>(ranks / host), host));
      const auto mixed = shuffled(launched, static_cast<std::uint64_t>(ranks * 100 + host));
      for (const auto& mesh : meshes_of(ranks)) {
        SCOPED_TRACE(in_words(mesh, launched));
        if (host % mesh.size(Axis::tensor) != 0) {
          EXPECT_THROW(placement(mesh, launched), ConfigError);
          ++refused;
          continue;
        }
        check_alike(mesh, launched);
        check_alike(mesh, mixed);
        ++fit;
        const int units = host / mesh.size(Axis::tensor), shard = mesh.size(Axis::shard);
        if (units % shard == 0 || shard % units == 0) {
          EXPECT_EQ(placement(mesh, launched), in_turn(ranks)) << "a good order is kept";
        }
      }
      if (HasFailure()) return;
    }
  EXPECT_GT(fit, 500);
  EXPECT_GT(refused, 500);
}

TEST(Placement,
     every_mesh_of_up_to_64_ranks_fits_into_uneven_domains_that_its_tensor_axis_divides) {
  int fit = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<int> gpus;
    int ranks = 0;
    for (std::uint64_t host = 0; ranks < 64; ++host) {
      const int size = std::min<int>(1 << philox(seed, 2, host)[0] % 4, 64 - ranks);
      gpus.push_back(seed % 2 == 0 ? size : std::max(size & ~1, std::min(2, 64 - ranks)));
      ranks += gpus.back();
    }
    const auto launched = shuffled(hosts_of(gpus), seed);
    for (const auto& mesh : meshes_of(ranks)) {
      const auto fits = [&](int size) { return size % mesh.size(Axis::tensor) == 0; };
      if (!std::all_of(gpus.begin(), gpus.end(), fits)) {
        EXPECT_THROW(placement(mesh, launched), ConfigError);
        continue;
      }
      place_and_check(mesh, launched);
      ++fit;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(fit, 300);
}

TEST(Placement, shuffled_ranks_of_8_gpu_hosts_get_the_tensor_peers_of_ordered_ones) {
  const auto tensor_groups = [](const Mesh& mesh, const Topology& launched) {
    const auto order = placement(mesh, launched);
    std::set<std::set<std::pair<std::string, int>>> groups;
    for (int rank = 0; rank < mesh.world(); ++rank) {
      std::set<std::pair<std::string, int>> group;
      for (const int peer : mesh.peers(Axis::tensor, rank)) {
        const auto& place =
            launched.places[static_cast<std::size_t>(order[static_cast<std::size_t>(peer)])];
        group.emplace(place.machine, place.gpu);
      }
      groups.insert(group);
    }
    return groups;
  };
  const auto launched = cluster("dgx_h100_x64");
  for (const int tensor : {1, 2, 4, 8})
    for (const int shard : {1, 8, 64}) {
      const Mesh mesh{.replicate = 512 / (shard * tensor), .shard = shard, .tensor = tensor};
      EXPECT_EQ(placement(mesh, launched), in_turn(512));
      EXPECT_EQ(tensor_groups(mesh, shuffled(launched, 7)), tensor_groups(mesh, launched));
    }
}

TEST(Placement, sharding_over_hosts_has_a_level_inside_and_one_along_the_rails) {
  const Mesh mesh{.shard = 16};
  const auto placed = place_and_check(mesh, cluster("dgx_h100_x2"));
  const auto levels = two_levels(placed, mesh.peers(Axis::shard, 11));
  EXPECT_EQ(levels.inside(11), (std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(levels.across(11), (std::vector<int>{3, 11}));
}

TEST(Placement, a_rack_is_filled_host_by_host_and_its_tensor_axis_may_be_72) {
  const auto racks = cluster("gb200_nvl72_x2");
  for (const auto& mesh :
       {Mesh{.replicate = 2, .tensor = 72}, Mesh{.replicate = 2, .shard = 9, .tensor = 8},
        Mesh{.shard = 36, .tensor = 4}, Mesh{.replicate = 4, .shard = 36}}) {
    EXPECT_EQ(placement(mesh, racks), in_turn(144));
    check_alike(mesh, racks);
    place_and_check(mesh, shuffled(racks, 3));
  }
  const Mesh mesh{.shard = 18, .tensor = 8};
  EXPECT_EQ(two_levels(racks, mesh.peers(Axis::shard, 0)).inside(0).size(), 9u);
}

// 6 shard ranks in hosts of 4: 4 + 2 and 2 + 4 would have one level; 2 + 2 + 2, twice, has two.
TEST(Placement, shards_that_do_not_fill_hosts_are_spread_evenly) {
  const Mesh mesh{.replicate = 2, .shard = 6};
  EXPECT_EQ(placement(mesh, hosts_of({4, 4, 4})),
            (std::vector<int>{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));
}

TEST(Placement, uneven_hosts_hold_whole_shard_axes_if_possible) {
  const auto uneven = cluster("uneven");
  EXPECT_EQ(placement({.replicate = 3, .shard = 4}, uneven), in_turn(12));
  EXPECT_EQ(placement({.shard = 3, .tensor = 4}, uneven), in_turn(12));
  const auto middle_first = hosts_of({2, 4, 6});
  EXPECT_EQ(placement({.replicate = 3, .shard = 4}, middle_first),
            (std::vector<int>{0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(Placement, a_group_in_domains_of_unequal_numbers_has_one_level) {
  const auto uneven = cluster("uneven");
  const auto levels = two_levels(uneven, in_turn(12));
  EXPECT_EQ(levels.inside(5), std::vector<int>{5});
  EXPECT_EQ(levels.across(5), in_turn(12));
  EXPECT_EQ(two_levels(uneven, std::vector<int>{2, 3, 8, 9}).across(9), (std::vector<int>{3, 9}));
  EXPECT_THROW(two_levels(uneven, std::vector<int>{2, 3}).inside(4), Error);
}

TEST(Placement, ranks_launched_round_robin_over_hosts_are_grouped_by_host) {
  const auto block = cluster("dgx_h100_x2");
  const auto cyclic = renumbered(block, {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15});
  EXPECT_EQ(placement({.shard = 2, .tensor = 8}, cyclic),
            (std::vector<int>{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}));
}

TEST(Placement, rails_in_an_order_that_all_hosts_share_stay_as_launched) {
  auto places = cluster("dgx_h100_x2").places;
  for (auto& place : places)
    place.rail = 7 - place.rail;
  EXPECT_EQ(placement({.shard = 2, .tensor = 8}, topology_of(places)), in_turn(16));
  std::swap(places[0].rail, places[1].rail);
  EXPECT_EQ(placement({.shard = 2, .tensor = 8}, topology_of(places)),
            (std::vector<int>{7, 6, 5, 4, 3, 2, 0, 1, 15, 14, 13, 12, 11, 10, 9, 8}));
}

TEST(Placement, a_tensor_axis_that_does_not_fit_is_an_error_with_the_reason) {
  const auto refused = [](const std::string& name, const Mesh& mesh, const Topology& topology,
                          std::initializer_list<std::string> pins) {
    const auto tensor = str("layout.tensor = ", mesh.size(Axis::tensor));
    expect_contains(message_of<ConfigError>([&] { placement(mesh, topology); }), tensor);
    expect_refusal<ConfigError>("dist/topology_placement", name, pins,
                                [&] { placement(mesh, topology); });
  };
  refused("small hosts", {.tensor = 8}, hosts_of({4, 4}),
          {"host n1 has 4", "ranks 0-3", "host n2 has 4", "ranks 4-7", "1, 2 or 4"});
  refused("uneven hosts", {.tensor = 12}, cluster("uneven"),
          {"host large has 8", "ranks 0-7", "host small has 4", "1, 2 or 4"});
  refused("some hosts", {.shard = 3, .tensor = 4}, hosts_of({4, 6, 2}),
          {"host n2 has 6", "ranks 4-9", "host n3 has 2", "1 or 2"});
  refused("no NVLink", {.shard = 2, .tensor = 4}, cluster("pcie_x2"),
          {"GPU 0 of host n1 has 1", "rank 0", "GPU 3 of host n1", "4 more",
           "--allow-tensor-across-nodes"});
  refused("no GPUs", {.replicate = 2, .tensor = 3}, cluster("processors_x3"),
          {"host n1 has 2", "ranks 0-1", "host n3 has 2", "1 or 2"});
  auto unknown = hosts_of({2}).places;
  for (auto& place : unknown)
    place.nvlink_peers.reset();
  refused("GPUs that see no other", {.tensor = 2}, topology_of(unknown),
          {"GPU 0 of host n1 has 1"});
}

TEST(Placement, a_tensor_axis_allowed_across_nodes_fills_domain_by_domain) {
  const auto cyclic = renumbered(hosts_of({2, 2}), {0, 2, 1, 3});
  EXPECT_EQ(placement({.tensor = 4}, cyclic, TensorAcross::allowed),
            (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(placement({.shard = 2, .tensor = 2}, cyclic, TensorAcross::allowed),
            placement({.shard = 2, .tensor = 2}, cyclic));
}

TEST(Placement, a_mesh_for_another_number_of_ranks_is_an_error) {
  expect_refusal<ConfigError>(
      "dist/topology_placement", "16 ranks of 12", {"2 x ", "4 x ", "16", "12"},
      [] { placement({.replicate = 2, .shard = 4, .tensor = 2}, cluster("uneven")); });
}

}  // namespace lockstep::testing::topology_placement_test
