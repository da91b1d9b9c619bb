// ControlWorld: the world of ranks that a launcher without MPI started, such as torchrun or srun.
// It carries only bytes. NCCL (dist/nccl_world.h) carries the tensors of GPUs, SocketWorld
// (dist/job/socket_world.h) those of CPUs.
#pragma once

#include <functional>
#include <memory>

#include "dist/comms.h"
#include "dist/job/control.h"
#include "dist/job/rendezvous.h"

namespace lockstep {

//   control   outlives the result
//   on_abort  reports the error to the other ranks and ends this one; Control has no message for it
std::unique_ptr<World> make_control_world(
    Control& control, std::function<void(const std::string& why, int exit_code)> on_abort);

// Makes the world of Rendezvous::Way::address: each rank connects to rank 0's control server. Its
// groups are those of SocketWorld.
// Throws TransientError if some do not connect within ten minutes.
std::unique_ptr<World> meet_at_address(const Rendezvous& found);

}  // namespace lockstep
