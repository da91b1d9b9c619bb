// StagedWorld: tensors of a GPU that travel through host memory and another world, so that several
// ranks can share one GPU, which NCCL refuses. For tests: each call waits for the GPU, and cannot
// be captured in a graph.
#pragma once

#include <memory>

#include "dist/comms.h"

namespace lockstep {

// `host` carries what is on CPUs, and outlives the result.
std::unique_ptr<World> make_staged_world(World& host);

}  // namespace lockstep
