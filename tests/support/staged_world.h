// StagedWorld sends tensors of a GPU through host memory and another world, so that several ranks
// can share one GPU, which NCCL rejects. It is for tests: each call waits for the GPU, and cannot
// be captured in a graph.
#pragma once

#include <memory>

#include "dist/comms.h"

namespace lockstep {

// `host` sends tensors between CPUs. It must outlive the result.
std::unique_ptr<World> make_staged_world(World& host);

}  // namespace lockstep
