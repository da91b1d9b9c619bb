// Memory of this process and machine, for the step line and for refusing what cannot fit.
#pragma once

#include <cstdint>
#include <string>

#include "core/arena.h"

namespace lockstep {

// Of a GPU, its own memory. Of the CPU, the host's:
//   used       the largest resident set of this process so far; on a GPU, what is taken of it now
//   resident   what this process has now; on a GPU, likewise
//   all        of this machine, or of this process's control group if less
//   available  that a new allocation may take: not swapped, not killed
std::int64_t used_memory_bytes(Device device);
std::int64_t resident_memory_bytes(Device device);
std::int64_t all_memory_bytes(Device device);
std::int64_t available_memory_bytes(Device device);

// Whether `bytes` are available, for a program on `device`, to each of `ranks` on this machine (of
// a GPU, each has its own).
bool has_memory(Device device, const Arenas::Bytes& bytes, int ranks = 1);

// Throws ConfigError where has_memory says no: before an allocation, because Linux grants one that
// does not fit and kills the process when it is used. `remedy`: what would need less. `others`:
// what is said of other processes on the GPU.
void require_memory(Device device, const Arenas::Bytes& bytes, const char* remedy,
                    const std::string& others = "", int ranks = 1);

}  // namespace lockstep
