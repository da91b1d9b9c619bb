#include "core/system/gpu_monitor.h"

#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <thread>

namespace lockstep::testing::gpu_monitor_test {

// Loads tests/simt/nvml.cpp as libnvidia-ml.so.1: dlopen finds a loaded library by this name.
class GpuMonitorTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(stand_in_, nullptr) << dlerror(); }
  void TearDown() override {
    unsetenv("LOCKSTEP_NVML");
    dlclose(stand_in_);
  }
  static void behave(const char* mode) { setenv("LOCKSTEP_NVML", mode, 1); }

 private:
  void* const stand_in_ = dlopen(LOCKSTEP_NVML_STAND_IN, RTLD_NOW | RTLD_LOCAL);
};

using Peers = std::vector<std::string>;

TEST_F(GpuMonitorTest, switches_inside_a_host_connect_its_gpus_without_a_fabric) {
  const GpuMonitor monitor("0000:5A:00.0");
  EXPECT_EQ(monitor.nvlink_peers(), (Peers{"0000:1b:00.0", "0000:9a:00.0", "0000:db:00.0"}));
  EXPECT_EQ(monitor.fabric_clique(), "");
}

TEST_F(GpuMonitorTest, a_complete_fabric_has_a_cluster_and_a_clique) {
  const GpuMonitor monitor("0000:5A:00.0");
  behave("fabric");
  EXPECT_EQ(monitor.fabric_clique(), "8f000000000000000000000000000001/32766");
  behave("fabric_starting");
  EXPECT_EQ(monitor.fabric_clique(), "");
}

TEST_F(GpuMonitorTest, a_bridge_connects_two_gpus) {
  behave("bridges");
  EXPECT_EQ(GpuMonitor("0000:5A:00.0").nvlink_peers(), Peers{"0000:1b:00.0"});
}

TEST_F(GpuMonitorTest, energy_grows_by_power_times_time) {
  const GpuMonitor monitor("0000:5A:00.0");
  using Clock = std::chrono::steady_clock;
  const auto joules = [](Clock::duration time) {
    return 500 * std::chrono::duration<double>(time).count();
  };
  const auto before = Clock::now();
  const auto first = monitor.energy_joules();
  const auto begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const auto end = Clock::now();
  const auto second = monitor.energy_joules();
  const auto after = Clock::now();
  ASSERT_TRUE(first && second);
  const auto cut = std::chrono::milliseconds(1);  // unit of the counter
  EXPECT_GE(*second - *first, joules(end - begin - cut));
  EXPECT_LE(*second - *first, joules(after - before + cut));
  behave("pascal");
  EXPECT_EQ(monitor.energy_joules(), std::nullopt);
}

TEST_F(GpuMonitorTest, values_that_nvml_lacks_are_unknown) {
  EXPECT_EQ(GpuMonitor("0000:77:00.0").nvlink_peers(), std::nullopt);
  behave("hidden");
  EXPECT_EQ(GpuMonitor("0000:5A:00.0").nvlink_peers(), std::nullopt);
  behave("errors");
  const GpuMonitor monitor("0000:5A:00.0");
  EXPECT_EQ(monitor.nvlink_peers(), std::nullopt);
  EXPECT_EQ(monitor.energy_joules(), std::nullopt);
  EXPECT_EQ(monitor.fabric_clique(), "");
}

std::vector<std::string> failures(const GpuHealth& health) {
  return {health.uncorrected_errors.failure, health.needs_repair.failure, health.links_up.failure,
          health.links_down.failure, health.most_clock_mhz.failure};
}

TEST_F(GpuMonitorTest, reports_faults_of_the_gpu) {
  const GpuMonitor monitor("0000:5A:00.0");
  const auto well = monitor.health();
  EXPECT_EQ(well.uncorrected_errors.value, 0);
  EXPECT_EQ(well.needs_repair.value, false);
  EXPECT_EQ(well.link_errors.value, 0);
  EXPECT_EQ(well.links_up.value, 12);
  EXPECT_EQ(well.links_down.value, 0);
  EXPECT_EQ(well.most_clock_mhz.value, 1980);
  EXPECT_EQ(failures(well), std::vector<std::string>(5));
  behave("ill");
  const auto ill = monitor.health();
  EXPECT_EQ(ill.uncorrected_errors.value, 2);
  EXPECT_EQ(ill.needs_repair.value, true);
  EXPECT_EQ(ill.link_errors.value, 10 + 20 + 30 + 40);
  EXPECT_EQ(ill.links_down.value, 1);
  behave("unjoined");
  EXPECT_EQ(monitor.health().links_up.value, 0);
  EXPECT_EQ(monitor.health().links_down.value, 12);
}

// An unsupported counter is not a failure; any other NVML error is.
TEST_F(GpuMonitorTest, reports_reasons_for_unknown_values) {
  const GpuMonitor monitor("0000:5A:00.0");
  for (const char* mode : {"errors", "lost"}) {
    behave(mode);
    const auto health = monitor.health();
    EXPECT_FALSE(health.uncorrected_errors.value || health.needs_repair.value ||
                 health.link_errors.value || health.links_down.value ||
                 health.most_clock_mhz.value);
  }
  EXPECT_EQ(
      failures(monitor.health()),
      (std::vector<std::string>{
          "nvmlDeviceGetTotalEccErrors: GPU is lost", "nvmlDeviceGetRemappedRows: GPU is lost",
          "nvmlDeviceGetNvLinkState: GPU is lost", "nvmlDeviceGetNvLinkState: GPU is lost",
          "nvmlDeviceGetMaxClockInfo: GPU is lost"}));
  EXPECT_EQ(monitor.read().clock_failure, "nvmlDeviceGetClockInfo: GPU is lost");
  EXPECT_EQ(monitor.read().causes_failure, "nvmlDeviceGetCurrentClocksEventReasons: GPU is lost");
  behave("errors");
  EXPECT_EQ(failures(monitor.health()), std::vector<std::string>(5));
  EXPECT_EQ(monitor.read().clock_failure, "");
  EXPECT_EQ(monitor.read().causes_failure, "");
  behave("no_causes");
  EXPECT_EQ(monitor.read().clock_mhz, 1755);
  EXPECT_EQ(monitor.read().causes_failure,
            "nvmlDeviceGetCurrentClocksEventReasons: Insufficient Permissions");
}

}  // namespace lockstep::testing::gpu_monitor_test
