// Memory of this process and machine, for the step line and for refusing what cannot fit.
#pragma once

#include <cstdint>

namespace lockstep {

std::int64_t process_peak_bytes();    // largest resident set so far
std::int64_t machine_memory_bytes();  // of this machine, or of this process's control group if less
std::int64_t available_memory_bytes();  // that a new allocation may take: not swapped, not killed

// Throws ConfigError where `bytes` are not available: before an allocation, because Linux grants
// one that does not fit and kills the process when it is used. `remedy`: what would need less.
void require_memory(std::int64_t bytes, const char* remedy);

}  // namespace lockstep
