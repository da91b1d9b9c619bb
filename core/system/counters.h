// Counters of errors that the system keeps of this machine (docs.kernel.org/ABI:
// sysfs-class-infiniband, sysfs-class-net-statistics; thermal_throttle of x86's processors): what
// grows while it works says which part of it is ill. `sysfs` is /sys, or a test's copy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace lockstep {

// By name: "mlx5_0 port 1 link_downed", "eth0 rx_errors", "processors core_throttle_count" (of all
// of them). What a system does not count is not there.
using Counters = std::map<std::string, std::int64_t>;
Counters error_counters(const std::filesystem::path& sysfs = "/sys");

// Those that grew, by how much.
Counters growth(const Counters& before, const Counters& after);

}  // namespace lockstep
