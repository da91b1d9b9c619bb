// ControlGroups reads the CPU and memory limits that Slurm, systemd or a container sets for this
// process. Each limit is the minimum over the process's group and its parents, from cgroup files of
// version 2 or 1 (docs.kernel.org/admin-guide/cgroup-v2.html, .../cgroup-v1/).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

struct ControlGroups {
  std::string membership;      // text of /proc/self/cgroup
  std::filesystem::path root;  // root directory of the groups: /sys/fs/cgroup
};

ControlGroups control_groups();  // groups of this process

// CPU time limit in CPUs, rounded up: cpu.max, or cpu.cfs_quota_us over cpu.cfs_period_us. INT_MAX
// if there is no limit.
int processors_granted(const ControlGroups& groups);

// Memory limit in bytes (memory.max or memory.limit_in_bytes), and the part of it that is free.
// Page cache counts as free, because the system drops it first. No limit: the largest int64.
struct MemoryGranted {
  std::int64_t limit = 0, left = 0;
};
MemoryGranted memory_granted(const ControlGroups& groups);

}  // namespace lockstep
