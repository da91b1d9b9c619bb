// The processors that a thread may run on.
#pragma once

#include <optional>
#include <pthread.h>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// Those that the calling thread may run on, ascending; empty where the system does not say.
std::vector<int> affinity();

// Lets a thread, by default the calling one, run on these. A hint: failure costs only speed.
void set_affinity(std::span<const int> processors, pthread_t thread = pthread_self());

// Seconds that the threads of this process, those that live, could have run and others had the
// processors; nothing where the system does not tell.
std::optional<double> seconds_without_processor();

// Ascending numbers as the kernel writes and reads them, "0-3,8", here and in the other direction.
// What is not such a list has no processors.
std::string processor_list(std::span<const int> processors);
std::vector<int> listed_processors(const std::string& list);

}  // namespace lockstep
