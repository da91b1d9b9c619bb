// MpiWorld joins processes as ranks by MPI, for CPUs. Sums are added in rank order, so each run of
// the same layout has the same bits.
#pragma once

#include <memory>

#include "dist/comms.h"

namespace lockstep {

bool has_mpi();  // whether this build has MPI

// Starts MPI, which ends with the result. Throws Error if this build has no MPI, or if MPI does not
// support calls from several threads.
std::unique_ptr<World> start_mpi();

}  // namespace lockstep
