// MpiWorld: ranks as processes, which MPI joins: for CPUs. What is summed is added in the order of
// ranks, as ThreadWorld adds it: the same bits.
#pragma once

#include <memory>

#include "dist/comms.h"

namespace lockstep {

bool has_mpi();  // this build

// Starts MPI, which ends with the result. Throws Error where this build has none, or MPI cannot be
// used by several threads.
std::unique_ptr<World> start_mpi();

}  // namespace lockstep
