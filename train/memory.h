// Memory of this process and machine, for the step line and for refusing what cannot fit.
#pragma once

#include <cstdint>

namespace lockstep {

std::int64_t process_peak_bytes();    // largest resident set so far
std::int64_t machine_memory_bytes();  // of this machine, or of this process's control group if less
std::int64_t available_memory_bytes();  // what a new allocation may take without swapping

}  // namespace lockstep
