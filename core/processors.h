// The processors of a process: which its affinity allows, and how many its control group pays for.
#pragma once

#include <filesystem>
#include <pthread.h>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// Those that the calling thread may run on, ascending; empty where the system does not say.
std::vector<int> affinity();

// Lets a thread, by default the calling one, run on these. A hint: failure costs only speed.
void set_affinity(std::span<const int> processors, pthread_t thread = pthread_self());

// The processors' worth of time that control groups grant, rounded up: the least of cpu.max
// (version 2) or cpu.cfs_quota_us (version 1) of the group and those above it; INT_MAX where none
// limits. `membership`: the text of /proc/self/cgroup; `root`: where the groups are,
// /sys/fs/cgroup.
int processors_granted(const std::string& membership, const std::filesystem::path& root);

}  // namespace lockstep
