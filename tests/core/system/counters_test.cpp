#include "core/system/counters.h"

#include <gtest/gtest.h>

#include "tests/sysfs.h"

namespace lockstep::testing::counters_test {

TEST(Counters, cover_ports_nics_and_cpus) {
  const Sysfs sysfs;
  sysfs.write("class/infiniband/mlx5_0/ports/1/counters/link_downed", "3");
  sysfs.write("class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "99");
  sysfs.write("class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err", "5");
  sysfs.write("class/net/eth0/statistics/rx_errors", "7");
  sysfs.write("class/net/eth0/statistics/rx_bytes", "99");
  sysfs.write("class/net/eth1/statistics/tx_errors", "none of a number");
  sysfs.write("devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "2");
  sysfs.write("devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "4");
  EXPECT_EQ(error_counters(sysfs.root()), (Counters{{"eth0 rx_errors", 7},
                                                    {"mlx5_0 port 1 link_downed", 3},
                                                    {"mlx5_0 port 1 packet_seq_err", 5},
                                                    {"CPU core_throttle_count", 6}}));
  EXPECT_TRUE(error_counters(sysfs.root() / "nowhere").empty());
}

TEST(Counters, growth_covers_only_counters_present_before) {
  EXPECT_EQ(growth({{"a", 1}, {"b", 5}, {"c", 9}}, {{"a", 4}, {"b", 5}, {"c", 0}, {"new", 7}}),
            (Counters{{"a", 3}}));
}

}  // namespace lockstep::testing::counters_test
