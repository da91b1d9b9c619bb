// Counters reads the error counters that the system keeps for this host (docs.kernel.org/ABI:
// sysfs-class-infiniband, sysfs-class-net-statistics; thermal_throttle of x86 CPUs). A counter that
// grows during work points to the faulty part. `sysfs` is /sys, or a test's copy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace lockstep {

// Counts by name: "mlx5_0 port 1 link_downed", "eth0 rx_errors", "CPU core_throttle_count"
// (sum over all CPUs). Counters that the system does not have are absent.
using Counters = std::map<std::string, std::int64_t>;
Counters error_counters(const std::filesystem::path& sysfs = "/sys");

// The counters that grew, with their growth.
Counters growth(const Counters& before, const Counters& after);

}  // namespace lockstep
