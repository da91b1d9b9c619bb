#include "core/system/machine.h"

#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "core/affinity.h"
#include "tests/sysfs.h"

namespace lockstep::testing::machine_test {

std::vector<int> all_of(int count) {
  std::vector<int> processors(static_cast<std::size_t>(count));
  std::iota(processors.begin(), processors.end(), 0);
  return processors;
}

std::vector<std::string> lists(const std::vector<ProcessorShare>& shares) {
  std::vector<std::string> lists;
  for (const auto& share : shares)
    lists.push_back(cpu_list(share.processors));
  return lists;
}

using Lists = std::vector<std::string>;

TEST(Machine, the_id_is_the_same_for_all_processes_of_a_host) {
  EXPECT_FALSE(machine_id().empty());
  EXPECT_EQ(machine_id(), machine_id());
  EXPECT_FALSE(host_name().empty());
}

TEST(Machine, an_address_has_the_format_of_sysfs) {
  EXPECT_EQ(pci_address("0000:5A:00.0"), "0000:5a:00.0");
  EXPECT_EQ(pci_address("00000000:5A:00.0"), "0000:5a:00.0");
  EXPECT_EQ(pci_address("0000D5E1:00:00.0"), "d5e1:00:00.0");
  EXPECT_EQ(pci_address("0012D5E1:00:00.0"), "12d5e1:00:00.0");
}

TEST(Machine, the_nearest_nic_shares_a_switch_with_the_gpu) {
  const DgxH100 dgx;
  std::set<int> indices;
  for (const auto& place : DgxH100::places()) {
    const auto adapter = nearest_adapter(dgx.sysfs.root(), place.gpu);
    EXPECT_EQ(adapter.name, place.adapter) << place.gpu;
    indices.insert(adapter.index);
  }
  EXPECT_EQ(indices, (std::set<int>{0, 3, 4, 5, 6, 9, 10, 11}));
  EXPECT_EQ(numa_node(dgx.sysfs.root(), "0000:61:00.0"), 0);
  EXPECT_EQ(numa_node(dgx.sysfs.root(), "0000:9d:00.0"), 1);
}

TEST(Machine, a_nic_that_is_down_is_skipped_and_keeps_its_number) {
  const DgxH100 dgx;
  dgx.sysfs.write("class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
  const auto adapter = nearest_adapter(dgx.sysfs.root(), "0000:1b:00.0");
  EXPECT_NE(adapter.name, "mlx5_0");
  EXPECT_EQ(adapter.name, str("mlx5_", adapter.index));
  EXPECT_EQ(nearest_adapter(dgx.sysfs.root(), "0000:43:00.0").index, 3);
}

TEST(Machine, ties_of_paths_prefer_a_nic_on_the_gpus_numa_node) {
  const Sysfs sysfs;
  sysfs.gpu("pci0008:00/0008:01:00.0", 0);
  sysfs.gpu("pci0018:00/0018:01:00.0", 1);
  sysfs.infiniband("mlx5_0", "pci0010:00/0010:01:00.0", 1);
  sysfs.infiniband("mlx5_1", "pci0000:00/0000:01:00.0", 0);
  EXPECT_EQ(nearest_adapter(sysfs.root(), "0008:01:00.0").name, "mlx5_1");
  EXPECT_EQ(nearest_adapter(sysfs.root(), "0018:01:00.0").name, "mlx5_0");
}

TEST(Machine, gpus_with_the_same_nearest_nics_use_them_in_turn) {
  const Sysfs sysfs;
  for (const char* gpu : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"})
    sysfs.gpu(str("pci0000:00/", gpu), -1);
  // Devices with lower addresses that do not count: the board's display, and a GPU's sound device.
  sysfs.display("pci0000:00/0000:00:1e.0", -1, "0x1a03", "0x030000");
  sysfs.display("pci0000:00/0000:00:1f.0", -1, "0x10de", "0x040300");
  sysfs.infiniband("mlx5_0", "pci0000:00/0000:05:00.0", -1);
  sysfs.infiniband("mlx5_1", "pci0000:00/0000:06:00.0", -1);
  std::vector<int> indices;
  for (const char* gpu : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"})
    indices.push_back(nearest_adapter(sysfs.root(), gpu).index);
  EXPECT_EQ(indices, (std::vector<int>{0, 1, 0, 1}));
}

TEST(Machine, ethernet_counts_without_infiniband) {
  const Sysfs sysfs;
  sysfs.gpu("pci0000:00/0000:01:00.0", -1);
  EXPECT_EQ(nearest_adapter(sysfs.root(), "0000:01:00.0").index, -1);
  sysfs.write("class/net/lo/operstate", "unknown");  // no device
  sysfs.ethernet("eth0", "pci0000:00/0000:02:00.0", -1, "down");
  EXPECT_EQ(nearest_adapter(sysfs.root(), "0000:01:00.0").name, "");
  sysfs.ethernet("eth1", "pci0000:00/0000:03:00.0", -1);
  EXPECT_EQ(nearest_adapter(sysfs.root(), "0000:01:00.0").name, "eth1");
  EXPECT_EQ(nearest_adapter(sysfs.root(), "0000:77:00.0").name, "") << "a GPU that is not there";
  sysfs.infiniband("mlx5_0", "pci0000:00/0000:04:00.0", -1);
  EXPECT_EQ(nearest_adapter(sysfs.root(), "0000:01:00.0").name, "mlx5_0");
}

TEST(Machine, ranks_divide_the_cores_of_their_gpus_numa_node) {
  const DgxH100 dgx;
  std::vector<Tenant> tenants;
  for (const int node : {0, 0, 0, 0, 1, 1, 1, 1})
    tenants.push_back({all_of(224), node});
  EXPECT_EQ(lists(divide_processors(dgx.sysfs.root(), tenants)),
            (Lists{"0-13,112-125", "14-27,126-139", "28-41,140-153", "42-55,154-167",
                   "56-69,168-181", "70-83,182-195", "84-97,196-209", "98-111,210-223"}));
  EXPECT_EQ(lists(divide_processors(dgx.sysfs.root(), {&tenants[5], 1})), Lists{"56-111,168-223"});
}

TEST(Machine, ranks_divide_all_cores_without_numa_information) {
  const DgxH100 dgx(false);
  const std::vector<Tenant> tenants(8, {all_of(224), -1});
  const auto shares = divide_processors(dgx.sysfs.root(), tenants);
  EXPECT_EQ(cpu_list(shares[0].processors), "0-13,112-125");
  EXPECT_EQ(cpu_list(shares[7].processors), "98-111,210-223");
  const DgxH100 with;
  const std::vector<Tenant> unknown{{all_of(224), 0}, {all_of(224), -1}};
  EXPECT_EQ(lists(divide_processors(with.sysfs.root(), unknown)),
            (Lists{"0-55,112-167", "56-111,168-223"}))
      << "whole nodes, where processors have one";
}

TEST(Machine, ranks_divide_a_shared_mask_and_stay_inside_it) {
  const DgxH100 dgx;
  const std::vector<int> quarter = parse_cpu_list("8-11,120-123");
  const std::vector<Tenant> tenants{{quarter, 0}, {quarter, 0}};
  EXPECT_EQ(lists(divide_processors(dgx.sysfs.root(), tenants)),
            (Lists{"8-9,120-121", "10-11,122-123"}));
  const std::vector<Tenant> elsewhere{{quarter, 1}, {quarter, 0}};  // no CPU of node 1
  EXPECT_EQ(lists(divide_processors(dgx.sysfs.root(), elsewhere)),
            (Lists{"8-9,120-121", "10-11,122-123"}));
}

TEST(Machine, a_rank_keeps_the_mask_that_the_launcher_set) {
  const DgxH100 dgx;
  const auto all = all_of(224);
  const std::vector<Tenant> tenants{
      {parse_cpu_list("60-63"), 0}, {parse_cpu_list("0-3"), 0}, {all, 1}};
  const auto shares = divide_processors(dgx.sysfs.root(), tenants);
  EXPECT_EQ(lists(shares), (Lists{"60-63", "0-3", "56-111,168-223"}));
  EXPECT_TRUE(shares[0].set_by_launcher);
  EXPECT_TRUE(shares[1].set_by_launcher);
  EXPECT_FALSE(shares[2].set_by_launcher);
}

TEST(Machine, two_ranks_on_two_cpus_get_one_each) {
  const Sysfs sysfs;
  sysfs.processors(2, 0);
  const std::vector<Tenant> tenants(2, {all_of(2), -1});
  EXPECT_EQ(lists(divide_processors(sysfs.root(), tenants)), (Lists{"0", "1"}));
}

TEST(Machine, with_fewer_cores_than_ranks_hardware_threads_are_divided_then_shared) {
  const Sysfs sysfs;
  sysfs.processors(4, 2);  // cores {0, 2} and {1, 3}
  EXPECT_EQ(lists(divide_processors(sysfs.root(), std::vector<Tenant>(2, {all_of(4), -1}))),
            (Lists{"0,2", "1,3"}));
  EXPECT_EQ(lists(divide_processors(sysfs.root(), std::vector<Tenant>(3, {all_of(4), -1}))),
            (Lists{"0", "2", "1,3"}));
  EXPECT_EQ(lists(divide_processors(sysfs.root(), std::vector<Tenant>(6, {all_of(4), -1}))),
            (Lists{"0", "0", "2", "1", "1", "3"}));
}

TEST(Machine, each_cpu_belongs_to_one_rank_for_all_counts) {
  const DgxH100 dgx;
  for (int ranks = 1; ranks <= 16; ++ranks) {
    std::vector<Tenant> tenants;
    for (int i = 0; i < ranks; ++i)
      tenants.push_back({all_of(224), ranks == 1 ? -1 : 2 * i / ranks});
    std::vector<int> given;
    for (const auto& share : divide_processors(dgx.sysfs.root(), tenants))
      given.insert(given.end(), share.processors.begin(), share.processors.end());
    std::sort(given.begin(), given.end());
    EXPECT_EQ(given, all_of(224)) << ranks;
  }
}

TEST(Machine, nothing_is_divided_without_information) {
  const Sysfs sysfs;
  const std::vector<Tenant> tenants{{{}, 0}, {{}, 0}};
  EXPECT_EQ(lists(divide_processors(sysfs.root(), tenants)), (Lists{"", ""}));
  EXPECT_EQ(numa_node(sysfs.root(), "0000:01:00.0"), -1);
}

}  // namespace lockstep::testing::machine_test
