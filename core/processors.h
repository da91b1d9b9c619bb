// The processors that a thread may run on.
#pragma once

#include <pthread.h>
#include <span>
#include <vector>

namespace lockstep {

// Those that the calling thread may run on, ascending; empty where the system does not say.
std::vector<int> affinity();

// Lets a thread, by default the calling one, run on these. A hint: failure costs only speed.
void set_affinity(std::span<const int> processors, pthread_t thread = pthread_self());

}  // namespace lockstep
