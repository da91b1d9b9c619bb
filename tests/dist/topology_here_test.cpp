#include "dist/topology_here.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "core/affinity.h"
#include "core/thread_pool.h"
#include "tests/support/topology_file.h"
#include "tests/sysfs.h"
#include "tests/wording.h"

namespace lockstep::testing::topology_here_test {

// Places of the ranks of a DGX H100 that no launcher bound.
std::vector<RankPlace> dgx_places(const DgxH100& dgx) {
  std::vector<RankPlace> places(8);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto* address = DgxH100::places()[i].gpu;
    const auto adapter = nearest_adapter(dgx.sysfs.root(), address);
    places[i] = {.host = "n1",
                 .machine = "n1",
                 .gpu = static_cast<int>(i),
                 .gpu_name = "NVIDIA H100",
                 .pci_address = address,
                 .fabric_clique = "",
                 .nvlink_peers = {},
                 .adapter = adapter.name,
                 .rail = adapter.index,
                 .numa_node = numa_node(dgx.sysfs.root(), address),
                 .processors = parse_cpu_list("0-223")};
  }
  return places;
}

std::string line(const std::vector<RankPlace>& places, const Sysfs& sysfs) {
  const auto topology = topology_of(places);
  const auto how = in_words(topology, machine_shares(topology, 0, sysfs.root()));
  const auto lines = in_words(topology, std::vector<std::string>(places.size(), how));
  EXPECT_EQ(lines.size(), 1u);
  return lines.front();
}

// The line of these ranks is the message `name`, which holds `pins`.
void expect_line(const std::string& name, const std::vector<RankPlace>& places, const Sysfs& sysfs,
                 std::initializer_list<std::string> pins) {
  const auto text = line(places, sysfs);
  for (const auto& pin : pins)
    expect_contains(text, pin);
  expect_wording("dist/topology_here", name, text);
}

TEST(TopologyHere, the_line_of_a_host_has_gpus_numa_nodes_cores_and_nics_of_its_ranks) {
  const DgxH100 dgx;
  auto places = dgx_places(dgx);
  expect_line("eight ranks", places, dgx.sysfs,
              {"host n1: ranks 0-7", "8 x NVIDIA H100", "NUMA 0,0,0,0,1,1,1,1", "28",
               "mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"});
  places.push_back(places.front());
  places.back().host = places.back().machine = "n2";
  EXPECT_EQ(host_ranks(topology_of(places), 8), std::vector<int>{8});
  places.resize(1);
  expect_line("one rank", places, dgx.sysfs, {"host n1: rank 0 ", "NUMA 0,", "mlx5_0,", "112"});
}

TEST(TopologyHere, identical_hosts_share_a_line) {
  std::vector<RankPlace> places(9);
  std::vector<std::string> said;
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i].host = places[i].machine = str("n", i / 2);
    said.push_back(i / 2 == 1 ? ", 2 CPU cores each" : ", 1 CPU core each");
  }
  said.back() = ", 1 CPU core";
  auto lines = in_words(topology_of(places), said);
  ASSERT_EQ(lines.size(), 3u);
  for (const char* pin : {"host n0: ranks 0-1", "host n2: ranks 4-5", "host n3: ranks 6-7"})
    expect_contains(lines[0], pin);
  EXPECT_EQ(lines[1], "host n1: ranks 2-3, 2 CPU cores each");
  EXPECT_EQ(lines[2], "host n4: rank 8, 1 CPU core");
  expect_wording("dist/topology_here", "hosts that are alike", lines[0]);
  places.clear();
  for (int i = 0; i < 16; ++i) {
    places.emplace_back();
    places.back().host = places.back().machine = str("n", i);
  }
  lines = in_words(topology_of(places), std::vector<std::string>(16, ", 1 CPU core"));
  ASSERT_EQ(lines.size(), 1u);
  expect_contains(lines[0], "12");
  expect_wording("dist/topology_here", "many hosts that are alike", lines[0]);
}

// SaidWorld returns `others` as the messages of the other ranks.
class SaidWorld final : public World {
 public:
  explicit SaidWorld(std::vector<std::string> others) : others_(std::move(others)) {}
  int rank() const override { return 0; }
  int size() const override { return 1 + static_cast<int>(others_.size()); }
  std::unique_ptr<Communicator> connect(const GroupConfig&) override { return nullptr; }
  std::vector<std::string> exchange(const std::string& mine) override {
    auto all = others_;
    all.insert(all.begin(), mine);
    return all;
  }
  void abort(const std::string&, int) noexcept override {}

 private:
  std::vector<std::string> others_;
};

TEST(TopologyHere, ranks_of_another_container_are_not_local) {
  const auto here = machine_id() + " " + host_name();
  SaidWorld world({here, machine_id() + " another pod", "another machine " + host_name(), here});
  EXPECT_EQ(ranks_here(world), (std::vector<int>{0, 1, 4}));
}

TEST(TopologyHere, without_numa_information_the_line_has_none) {
  const DgxH100 dgx(false);
  auto places = dgx_places(dgx);
  for (auto& place : places)
    place.adapter = "";
  expect_line("without NUMA", places, dgx.sysfs, {"host n1: ranks 0-7", "28"});
}

TEST(TopologyHere, the_line_has_the_cpus_that_the_launcher_bound) {
  const DgxH100 dgx;
  auto places = dgx_places(dgx);
  places.resize(2);
  places[0].processors = parse_cpu_list("0-3");
  places[1].processors = parse_cpu_list("4-5");
  expect_line("bound", places, dgx.sysfs, {"host n1: ranks 0-1", "4,2"});
}

TEST(TopologyHere, ranks_on_cpus_divide_the_quota_of_their_container) {
  const Sysfs sysfs;
  sysfs.processors(8, 0);
  RankPlace place{.host = "pod",
                  .machine = "m",
                  .gpu_name = "",
                  .pci_address = "",
                  .fabric_clique = "",
                  .nvlink_peers = {},
                  .adapter = "",
                  .processors = parse_cpu_list("0-7")};
  std::vector<RankPlace> places(2, place);
  const auto busy = [&] { return machine_shares(topology_of(places), 0, sysfs.root()).busy; };
  EXPECT_EQ(busy(), (std::vector<int>{4, 4}));
  places[0].processors_granted = places[1].processors_granted = 3;
  EXPECT_EQ(busy(), (std::vector<int>{1, 1}));
  places[1].host = "another pod";
  EXPECT_EQ(busy(), (std::vector<int>{3, 3}));
  places.resize(1);
  expect_line("processors", places, sysfs, {"host pod: rank 0", "3"});
}

TEST(TopologyHere, the_place_of_a_process_has_its_host_and_cpus) {
  const auto place = this_place(Device{});
  EXPECT_EQ(place.gpu, -1);
  EXPECT_EQ(place.machine, machine_id());
  EXPECT_EQ(place.processors, affinity());
  EXPECT_EQ(rank_place(to_json(place)).processors, place.processors);
}

// Runs in its own process, because the setting is per process.
TEST(TopologyHere, two_unbound_ranks_take_half_of_the_cpus_each) {
  if (affinity().size() % 2 != 0) GTEST_SKIP() << "on " << affinity().size() << " processors";
  const auto take_the_second_half = [] {
    const std::vector<RankPlace> places(2, this_place(Device{}));
    const auto before = processors_allowed();
    const auto topology = topology_of(places);
    const auto machine = machine_shares(topology, 1);
    use_share(machine, 1);
    const auto half = affinity();
    const bool is_mine = half == machine.shares[1].processors;
    _exit(is_mine && 2 * half.size() == places[1].processors.size() &&
                  processors_allowed() == std::max(before / 2, 1)
              ? 0
              : 1);
  };
  EXPECT_EXIT(take_the_second_half(), ::testing::ExitedWithCode(0), "");
}

}  // namespace lockstep::testing::topology_here_test
