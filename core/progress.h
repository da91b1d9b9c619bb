// Progress: a count that grows while this process gets on with its work, whatever that is: kernels
// of a CPU, collectives, files. Who looks for processes that hang (dist/job/heartbeat.h) looks at
// this.
#pragma once

#include <cstdint>

namespace lockstep {

// From any thread, at least every few seconds while there is progress.
void made_progress() noexcept;
std::uint64_t progress_made() noexcept;

}  // namespace lockstep
