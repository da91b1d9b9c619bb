#include "dist/topology/topology.h"

#include <gtest/gtest.h>

#include "tests/support/topology_file.h"
#include "tests/wording.h"

namespace lockstep::testing::topology_test {

std::vector<RankPlace> cluster(const std::string& name) {
  return pretend_cluster(std::string(LOCKSTEP_CLUSTERS) + "/" + name + ".json");
}

std::vector<std::string> names(const Topology& topology) {
  std::vector<std::string> names;
  for (const auto& domain : topology.domains)
    names.push_back(domain.name);
  return names;
}

using Names = std::vector<std::string>;

// The summary line is the message `name`, which holds `pins`.
void expect_summary(const std::string& name, const Topology& topology,
                    std::initializer_list<std::string> pins) {
  const auto text = in_words(topology);
  for (const auto& pin : pins)
    expect_contains(text, pin);
  expect_wording("dist/topology", name, text);
}

TEST(Topology, a_host_whose_gpus_are_all_linked_is_a_domain) {
  const auto topology = topology_of(cluster("dgx_h100_x2"));
  EXPECT_EQ(names(topology), (Names{"host n1", "host n2"}));
  EXPECT_EQ(topology.domains[1].ranks, (std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(topology.domain_of[7], 0);
  EXPECT_EQ(topology.domain_of[8], 1);
  expect_summary("DGX", topology, {"16 ranks", "2 hosts", "2 x 8 ranks"});
  EXPECT_EQ(host_ranks(topology, 9), topology.domains[1].ranks);
  const auto dealt = renumbered(topology, {8, 0, 9, 1, 10, 2, 11, 3, 12, 4, 13, 5, 14, 6, 15, 7});
  EXPECT_EQ(machines(dealt), (std::vector<std::vector<int>>{{0, 2, 4, 6, 8, 10, 12, 14},
                                                            {1, 3, 5, 7, 9, 11, 13, 15}}));
  EXPECT_EQ(names(dealt), (Names{"host n2", "host n1"}));
  EXPECT_THROW(renumbered(topology, std::vector<int>(16, 3)), Error);
  EXPECT_THROW(renumbered(topology, {0, 1}), Error);
}

TEST(Topology, a_rack_that_a_fabric_joins_is_a_domain) {
  const auto topology = topology_of(cluster("gb200_nvl72_x2"));
  for (const auto& [rack, name] :
       {std::pair("rack a", names(topology)[0]), {"rack b", names(topology)[1]}}) {
    expect_contains(name, rack);
    expect_wording("dist/topology", rack, name);
  }
  EXPECT_EQ(topology.domains[0].ranks.size(), 72u);
  EXPECT_EQ(topology.domains.size(), 2u);
  expect_summary("racks", topology, {"144 ranks", "36 hosts", "2 x 72 ranks"});
}

TEST(Topology, a_long_clique_is_named_in_short) {
  auto places = cluster("dgx_h100_x2");
  for (auto& place : places)
    place.fabric_clique = "8f0e1d2c3b4a59687766554433221100/32766";
  const auto found = names(topology_of(places));
  ASSERT_EQ(found.size(), 1u);
  expect_contains(found[0], "8f0e1d2c../32766");
  expect_wording("dist/topology", "a long clique", found[0]);
}

TEST(Topology, gpus_without_nvlink_are_separate_domains) {
  const auto topology = topology_of(cluster("pcie_x2"));
  ASSERT_EQ(topology.domains.size(), 8u);
  EXPECT_EQ(topology.domains[5].name, "GPU 1 of host n2");
  EXPECT_FALSE(topology.domains[5].links_unknown);
  expect_summary("no NVLink", topology, {"8 ranks", "2 hosts", "8 x 1 rank"});
}

TEST(Topology, bridges_make_domains_of_the_gpus_that_they_join) {
  EXPECT_EQ(names(topology_of(cluster("bridges"))),
            (Names{"GPUs 0,2 of host n1", "GPUs 1,3 of host n1"}));
}

// The links of a DGX-1: each GPU is linked to the others of its quad and to one of the other quad.
TEST(Topology, links_that_do_not_join_every_pair_make_smaller_domains_in_any_order) {
  auto places = cluster("dgx_h100_x2");
  places.resize(8);
  std::vector<std::string> address;
  for (const auto& place : places)
    address.push_back(place.pci_address);
  for (std::size_t i = 0; i < 8; ++i) {
    places[i].nvlink_peers.emplace();
    for (std::size_t j = 0; j < 8; ++j)
      if (j != i && (j / 4 == i / 4 || j % 4 == i % 4))
        places[i].nvlink_peers->push_back(address[j]);
  }
  EXPECT_EQ(names(topology_of(places)), (Names{"GPUs 0-3 of host n1", "GPUs 4-7 of host n1"}));
  const auto shuffled = renumbered(topology_of(places), {4, 0, 5, 1, 6, 2, 7, 3});
  EXPECT_EQ(names(shuffled), (Names{"GPUs 4-7 of host n1", "GPUs 0-3 of host n1"}));
}

TEST(Topology, a_link_known_to_one_side_only_does_not_count) {
  auto places = cluster("bridges");
  places[2].nvlink_peers->clear();
  EXPECT_EQ(topology_of(places).domains.size(), 3u);
}

TEST(Topology, gpus_with_unknown_links_are_separate_domains) {
  auto places = cluster("dgx_h100_x2");
  for (auto& place : places)
    place.nvlink_peers.reset();  // as with MIG, or one GPU for each container
  const auto topology = topology_of(places);
  EXPECT_EQ(topology.domains.size(), 16u);
  EXPECT_TRUE(topology.domains[3].links_unknown);
  expect_summary("unknown links", topology, {"16 x 1 rank", "16 GPUs"});
  EXPECT_FALSE(topology_of({places[3]}).domains[0].links_unknown) << "there is no other GPU";
}

TEST(Topology, ranks_on_cpus_have_one_domain_per_host) {
  const auto topology = topology_of(cluster("processors_x3"));
  EXPECT_EQ(names(topology), (Names{"host n1", "host n2", "host n3"}));
  expect_summary("no GPUs", topology, {"6 ranks", "3 hosts", "3 x 2 ranks"});
}

TEST(Topology, equal_host_names_do_not_mean_one_host) {
  auto places = cluster("dgx_h100_x2");
  for (auto& place : places)
    place.host = "trainer";  // a possible host name of containers
  EXPECT_EQ(topology_of(places).domains.size(), 2u);
  auto two_containers = cluster("processors_x3");
  for (auto& place : two_containers)
    place.machine = "one boot";
  EXPECT_EQ(topology_of(two_containers).domains.size(), 1u);
}

TEST(Topology, two_ranks_on_one_gpu_are_an_error_unless_intended) {
  auto places = cluster("dgx_h100_x2");
  places[13].pci_address = places[10].pci_address;
  expect_refusal<ConfigError>(
      "dist/topology", "two ranks on one GPU",
      {"ranks 10 and 13", places[10].pci_address, "host n2", "CUDA_VISIBLE_DEVICES"},
      [&] { topology_of(places); });
  EXPECT_EQ(topology_of(places, SharedGpus::meant).domains.size(), 2u);
  places[13].machine = "another";
  EXPECT_NO_THROW(topology_of(places));
}

TEST(Topology, a_place_reads_back_as_written) {
  auto place = cluster("dgx_h100_x2")[9];
  place.processors = {0, 1, 2, 7};
  place.processors_granted = 3;
  const auto text = to_json(place).dump();
  const auto arrived = rank_place(Json::parse(text, "rank 9"));
  EXPECT_EQ(to_json(arrived).dump(), text);
  EXPECT_EQ(arrived.nvlink_peers, place.nvlink_peers);
  EXPECT_EQ(arrived.processors, place.processors);
  EXPECT_EQ(arrived.processors_granted, 3);
  EXPECT_EQ(arrived.rail, 1);
  place.nvlink_peers.reset();
  EXPECT_EQ(rank_place(Json::parse(to_json(place).dump(), "rank 9")).nvlink_peers, std::nullopt);
  auto json = to_json(place);
  json.set("rail", "first");
  expect_refusal<DataError>("dist/topology", "a place", {"\"rail\" is \"first\""},
                            [&] { rank_place(json); });
}

TEST(PretendCluster, names_the_fault_and_the_expected_value) {
  struct Row {
    const char *file, *pin;
  };
  for (const auto& [file, pin] : std::vector<Row>{
           {R"([])", "\"hosts\""},
           {R"({})", "\"hosts\""},
           {R"({"hosts": []})", "\"hosts\""},
           {R"({"hosts": 3})", "\"hosts\""},
           {R"({"racks": 3})", "\"racks\""},
           {R"({"hosts": [5]})", "hosts[0]: "},
           {R"({"hosts": [{"ranks": 1}]})", "hosts[0]: the key \"name\""},
           {R"({"hosts": [{"name": "n"}]})", "hosts[0]: the key \"ranks\""},
           {R"({"hosts": [{"name": "", "ranks": 1}]})", "hosts[0]: \"name\""},
           {R"({"hosts": [{"name": "a", "ranks": 1}, {"name": "n", "ranks": 0}]})",
            "hosts[1]: \"ranks\" is 0"},
           {R"({"hosts": [{"name": "n", "ranks": 1, "gpus": 8}]})", "hosts[0]: the key \"gpus\""},
           {R"({"hosts": [{"name": "n", "ranks": 2, "nvlink": "all"}]})", "hosts[0]: \"nvlink\""},
           {R"({"hosts": [{"name": "n", "ranks": 2, "gpu": "X", "nvlink": 1}]})",
            "hosts[0]: \"nvlink\" is 1"},
           {R"({"hosts": [{"name": "n", "ranks": 2, "gpu": "X", "nvlink": [0, 1]}]})",
            "hosts[0]: \"nvlink\" has 0"},
           {R"({"hosts": [{"name": "n", "ranks": 2, "gpu": "X", "nvlink": [[0, 2]]}]})",
            "hosts[0]: \"nvlink\" has the GPU 2"},
           {R"({"hosts": [{"name": "n", "ranks": 2, "gpu": "X", "nvlink": [[0], [0]]}]})",
            "hosts[0]: \"nvlink\" has the GPU 0"},
           {R"({"hosts": [{"name": "n", "ranks": 2, "gpu": "X", "nvlink": "all", "fabric": "f"}]})",
            "hosts[0]: \"nvlink\" and \"fabric\""},
           {R"({"hosts": [{"name": "n", "ranks": 2, "gpu": "X", "adapters": 3}]})",
            "hosts[0]: \"adapters\" is 3"},
           {R"({"hosts": [{"name": "n", "count": 2, "ranks": 1}, {"name": "n2", "ranks": 1}]})",
            "hosts[1]: the host \"n2\""},
           {R"({"hosts": [{"name": "n", "count": 1000, "ranks": 1000}]})", "hosts[0]: "}}) {
    expect_refusal<DataError>("dist/topology_file", file, {"c.json: ", pin},
                              [&, file = file] { pretend_cluster_of(file, "c.json"); });
  }
  expect_contains(message_of<DataError>([] { pretend_cluster_of(R"({"hosts": )", "c.json"); }),
                  "c.json: at byte 10");
}

TEST(PretendCluster, has_a_rank_for_each_gpu_host_by_host) {
  const auto places = cluster("dgx_h100_x2");
  ASSERT_EQ(places.size(), 16u);
  EXPECT_EQ(places[13].host, "n2");
  EXPECT_EQ(places[13].gpu, 5);
  EXPECT_EQ(places[13].rail, 5);
  EXPECT_EQ(places[13].numa_node, 1);
  EXPECT_EQ(cluster("gb200_nvl72_x2")[142].rail, 2);
  EXPECT_EQ(cluster("processors_x3")[5].gpu, -1);
}

}  // namespace lockstep::testing::topology_test
