// Control groups: what the system lets this process have of the machine, by Slurm, systemd or a
// container. Each figure is the least of the process's group and those above it, read from the
// files of version 2 or 1 (docs.kernel.org/admin-guide/cgroup-v2.html, .../cgroup-v1/).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

struct ControlGroups {
  std::string membership;      // the text of /proc/self/cgroup
  std::filesystem::path root;  // where the groups are: /sys/fs/cgroup
};

ControlGroups control_groups();  // of this process

// The processors' worth of time, rounded up: cpu.max, or cpu.cfs_quota_us over cpu.cfs_period_us.
// INT_MAX where none limits.
int processors_granted(const ControlGroups& groups);

// Bytes of memory: memory.max or memory.limit_in_bytes, and what is left of them beside what all
// processes of the group use, without the pages of files, which the system drops first. The
// largest int64 where none limits.
struct MemoryGranted {
  std::int64_t limit = 0, left = 0;
};
MemoryGranted memory_granted(const ControlGroups& groups);

}  // namespace lockstep
