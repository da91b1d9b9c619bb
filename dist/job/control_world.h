// ControlWorld: ranks that a launcher started where MPI cannot, as torchrun and srun do. It carries
// bytes alone: on GPUs NCCL joins it to what carries tensors (dist/nccl_world.h).
#pragma once

#include <functional>
#include <memory>

#include "dist/comms.h"
#include "dist/job/control.h"
#include "dist/job/rendezvous.h"

namespace lockstep {

//   control   outlives the result
//   on_abort  tells the other ranks, and ends this one: Control has no message for them
std::unique_ptr<World> make_control_world(
    Control& control, std::function<void(const std::string& why, int exit_code)> on_abort);

// The ranks of Rendezvous::Way::address: each finds the others at rank 0's hub. Throws
// TransientError where they do not come within ten minutes.
std::unique_ptr<World> meet_at_address(const Rendezvous& found);

}  // namespace lockstep
