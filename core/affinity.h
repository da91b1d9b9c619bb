// Processors reads and sets the CPUs that a thread may run on.
#pragma once

#include <optional>
#include <pthread.h>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// CPUs that the calling thread may run on, ascending; empty if unknown.
std::vector<int> affinity();

// Lets a thread, by default the calling one, run on these CPUs. Ignores failure, which costs speed.
void set_affinity(std::span<const int> processors, pthread_t thread = pthread_self());

// Seconds in which running threads of this process waited for a CPU; nullopt if unknown.
std::optional<double> seconds_without_cpu();

// Formats ascending CPU numbers as the kernel does, "0-3,8", and parses them. An invalid list gives
// no CPUs.
std::string cpu_list(std::span<const int> processors);
std::vector<int> parse_cpu_list(const std::string& list);

}  // namespace lockstep
