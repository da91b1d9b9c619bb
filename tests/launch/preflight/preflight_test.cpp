#include "launch/preflight/preflight.h"

#include <cmath>

#include "launch/plan/plan_errors.h"
#include "tests/launch/preflight/preflight_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::preflight_test {

// Results of all ranks on simulated hosts. `counts` gets the number of findings of rank 0 after
// each part.
std::vector<Preflight> on_hosts(const std::vector<int>& ranks, const Config* config,
                                std::vector<std::size_t>* counts = nullptr) {
  const TemporaryDirectory scratch;
  const Topology topology = pretend_hosts(ranks);
  const auto size = static_cast<int>(topology.places.size());
  std::vector<Preflight> all(topology.places.size());
  run_thread_ranks(size, [&](World& world) {
    all[static_cast<std::size_t>(world.rank())] = preflight(
        {.config = config, .mesh = Mesh{.shard = size}, .device = {}, .scratch = scratch.path()},
        world, topology, [&](const std::vector<Finding>& findings) {
          if (world.rank() == 0 && counts != nullptr) counts->push_back(findings.size());
        });
  });
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  return all;
}

// The step's own time names its configuration, so that it is not compared with another model's.
TEST(Preflight, measures_each_rank_in_parts_and_returns_a_cluster_for_plans) {
  const Config config = small_run(2, 1);
  std::vector<std::size_t> counts;
  const auto all = on_hosts({1, 1}, &config, &counts);
  for (const Preflight& one : all)
    for (const char* check :
         {"product 1024 x 1024 x 1024 fp32", "product 1024 x 1024 x 1024 bf16",
          "share of its CPU time", "memory, read and written", "copy from the host",
          "copy to the host", "sends to other hosts", "storage, written", "storage, read",
          "a step's own operators", "errors of NICs and CPUs, new"}) {
      ASSERT_NE(find(one.findings, check), nullptr) << check;
      EXPECT_EQ(find(one.findings, check)->failure, "") << check;
      EXPECT_FALSE(std::isnan(find(one.findings, check)->value)) << check;
    }
  const auto& mine = all[0].findings;
  for (const Finding& one : mine)
    EXPECT_TRUE(!one.whose.empty() || find(all[1].findings, one.check) != nullptr) << one.check;
  const auto& product = "product 1024 x 1024 x 1024 fp32";
  EXPECT_EQ(find(mine, product)->bits, find(all[1].findings, product)->bits);
  EXPECT_EQ(find(mine, product)->bits.size(), 32u);
  EXPECT_EQ(find(mine, "memory, read and written")->of, "1 rank on the host, 1 thread each");
  expect_contains(find(mine, "a step's own operators")->of, plan_error_key(config));
  ASSERT_EQ(counts.size(), 4u);
  EXPECT_GT(counts.front(), 0u);
  EXPECT_EQ(counts.back(), mine.size());
  EXPECT_TRUE(std::ranges::is_sorted(counts));

  const Cluster& cluster = all[0].cluster;
  check(cluster);
  EXPECT_EQ(cluster.device, Device::Kind::cpu);
  EXPECT_EQ(cluster.nodes, 2);
  EXPECT_EQ(cluster.ranks_per_node, 1);
  EXPECT_GT(cluster.operators.times().size(), 10u);
  EXPECT_EQ(cluster.links.links().size(), 6u);  // three kinds, on the compute stream and beside it
  EXPECT_GE(cluster.compute_beside, 1);
  EXPECT_GE(cluster.other_beside, 1);
  EXPECT_GT(cluster.wait_share, 0);
  EXPECT_EQ(cluster.wait_share, all[1].cluster.wait_share);
  EXPECT_GT(cluster.storage_write_bytes_per_second, 0);
  EXPECT_GT(cluster.constant_bytes, 0);
  EXPECT_EQ(to_json(parse_cluster(to_json(cluster))).dump(), to_json(cluster).dump());
}

TEST(Preflight, a_model_that_does_not_fit_is_rejected_before_measuring) {
  const TemporaryDirectory scratch;
  Config config = small_run(1, 64);
  config.model.width = 1 << 16;
  config.model.mlp_width = 1 << 18;
  LoneWorld alone;
  bool is_measured = false;
  const auto refused = message_of<ConfigError>([&] {
    preflight({.config = &config, .mesh = {}, .device = {}, .scratch = scratch.path()}, alone,
              pretend_hosts({1}), [&](const auto&) { is_measured = true; });
  });
  expect_contains(refused, "iB");  // needed and available memory
  EXPECT_FALSE(is_measured);
}

// docs/preflight.md has these numbers for NICs of 200 Gbit/s.
TEST(Preflight, limits_are_those_of_the_configured_cluster) {
  const Hardware& h100 = *find_hardware("NVIDIA H100");
  EXPECT_EQ(expected_hardware(&h100, nullptr)->nic_bytes_per_second, 46e9);
  EXPECT_FALSE(expected_hardware(nullptr, nullptr).has_value());
  Cluster file = cluster_of_gpus(h100, 8);
  file.hardware.nic_bytes_per_second = 23e9;
  file.hardware.host_bytes_per_second = 20e9;
  for (const Hardware* known : {&h100, static_cast<const Hardware*>(nullptr)}) {
    EXPECT_EQ(expected_hardware(known, &file)->nic_bytes_per_second, 23e9);
    EXPECT_EQ(expected_hardware(known, &file)->host_bytes_per_second, 20e9);
  }
  // If preflight wrote the file, a slow host copy does not become the expected rate.
  file.launch_seconds = 3e-6;  // a hand-written file may have this key too
  EXPECT_EQ(expected_hardware(&h100, &file)->host_bytes_per_second, 20e9);
  file.is_measured = true;
  EXPECT_EQ(expected_hardware(&h100, &file)->nic_bytes_per_second, 23e9);
  EXPECT_EQ(expected_hardware(&h100, &file)->host_bytes_per_second, 55e9);
  EXPECT_FALSE(expected_hardware(nullptr, &file).has_value());
  file.hardware.nic_bytes_per_second = 50e9;
  EXPECT_EQ(expected_hardware(&h100, &file)->nic_bytes_per_second, 46e9);
  file.hardware.nic_bytes_per_second = 0;
  EXPECT_EQ(expected_hardware(&h100, &file)->nic_bytes_per_second, 46e9);
  file.hardware.name = find_hardware("NVIDIA H200")->name;
  EXPECT_EQ(expected_hardware(&h100, &file)->nic_bytes_per_second, 46e9);
  file.is_measured = false;
  expect_refusal<ConfigError>("launch/preflight_checks", "another GPU", {"plan.cluster", h100.name},
                              [&] { expected_hardware(&h100, &file); });
  file.hardware.name = "one of ours";
  EXPECT_EQ(expected_hardware(&h100, &file)->name, "one of ours");
  file.device = Device::Kind::cpu;
  EXPECT_EQ(expected_hardware(&h100, &file)->nic_bytes_per_second, 46e9);
}

TEST(Preflight, measured_rates_replace_the_table_of_a_gpu) {
  const Hardware& h100 = *find_hardware("NVIDIA H100");
  const auto gpu = calibrated(h100, {.memory = 2.7e12, .host = 50e9, .hosts = 18e9});
  EXPECT_NEAR(gpu.hbm_bytes_per_second, 3e12, 1);
  EXPECT_EQ(gpu.host_bytes_per_second, 50e9);
  EXPECT_NEAR(gpu.nic_bytes_per_second, 20e9, 1);
  EXPECT_EQ(gpu.nvlink_bytes_per_second, h100.nvlink_bytes_per_second);
  EXPECT_EQ(gpu.bf16_flops, h100.bf16_flops);
  const auto same = calibrated(h100, {});
  EXPECT_EQ(same.hbm_bytes_per_second, h100.hbm_bytes_per_second);
  EXPECT_EQ(same.host_bytes_per_second, h100.host_bytes_per_second);
  EXPECT_EQ(same.nic_bytes_per_second, h100.nic_bytes_per_second);
}

// Hosts with equal names do not mix the findings of their ranks.
TEST(Preflight, ranks_have_a_name_with_the_host_and_a_unique_key) {
  std::vector<RankPlace> places(4);
  places[0].host = places[1].host = places[3].host = "vm";
  places[2].host = "n1";
  for (std::size_t i = 0; i < places.size(); ++i)
    places[i].machine = str("machine ", i % 2);
  places[1].gpu = 5;
  Topology topology;
  topology.places = places;
  const auto who = who_is_who(topology);
  ASSERT_EQ(who.size(), 4u);
  EXPECT_EQ(who[0].words, "host vm, rank 0");
  EXPECT_EQ(who[1].words, "host vm, GPU 5, rank 1");
  EXPECT_EQ(who[2].words, "host n1, rank 2");
  EXPECT_EQ(who[0].key, "vm/0");
  EXPECT_EQ(who[1].key, "vm/1");
  EXPECT_EQ(who[2].key, "n1/0");
  EXPECT_EQ(who[3].key, "vm/2");
}

// Two ranks share a host and its CPUs. Checks between hosts and of steps are left out.
TEST(Preflight, the_cluster_has_the_measured_rates_of_ranks_and_nodes) {
  const auto all = on_hosts({2}, nullptr);
  const Cluster& cluster = all[0].cluster;
  EXPECT_EQ(cluster.nodes, 1);
  EXPECT_EQ(cluster.ranks_per_node, 2);
  EXPECT_EQ(cluster.name, "1 host of 2 x CPU");
  const auto value = [&](const char* check) { return find(all[0].findings, check)->value; };
  EXPECT_EQ(cluster.storage_write_bytes_per_second, 2 * value("storage, written"));
  EXPECT_EQ(cluster.storage_read_bytes_per_second, 2 * value("storage, read"));
  EXPECT_EQ(cluster.hardware.hbm_bytes_per_second, value("memory, read and written"));
  EXPECT_EQ(cluster.hardware.host_bytes_per_second,
            std::min(value("copy from the host"), value("copy to the host")));
  EXPECT_EQ(cluster.hardware.fp32_flops, value("product 1024 x 1024 x 1024 fp32"));
  EXPECT_EQ(cluster.hardware.bf16_flops, value("product 1024 x 1024 x 1024 bf16"));
  double fastest = 0;
  for (const LinkTime& link : cluster.links.links()) {
    EXPECT_EQ(link.domains, 1);
    if (link.kind == Collective::all_gather) fastest = std::max(fastest, link.bytes_per_second);
  }
  EXPECT_GT(fastest, 0);
  EXPECT_EQ(cluster.hardware.nvlink_bytes_per_second, fastest);
  EXPECT_EQ(find(all[0].findings, "sends to other hosts"), nullptr);
  EXPECT_TRUE(cluster.operators.times().empty());
  EXPECT_EQ(cluster.constant_bytes, 0);
}

}  // namespace lockstep::testing::preflight_test
