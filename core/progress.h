// Progress is a counter that grows while this process works: CPU kernels, collectives, files. The
// detection of hanging processes (dist/job/heartbeat.h) uses it.
#pragma once

#include <cstdint>

namespace lockstep {

// Called from any thread, at least every few seconds while there is progress.
void made_progress() noexcept;
std::uint64_t progress_made() noexcept;

}  // namespace lockstep
