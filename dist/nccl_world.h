// NcclWorld: ranks that have a GPU each, and talk by NCCL. Another world brings them together, over
// which they tell each other how. all_reduce gives every rank the same bits; which ones depends on
// what NCCL chooses (nccl_in_words): sums of gradients do not go that way (dist/reduction.h).
#pragma once

#include <chrono>
#include <memory>

#include "dist/comms.h"

namespace lockstep {

bool has_nccl();  // this build

// What NCCL's sums depend on beside the machines: its version, and the variables that set what it
// would choose itself: "2.28.9", "2.28.9 NCCL_ALGO=Ring". Of a build with NCCL.
std::string nccl_in_words();

// Every rank of `host` calls it; `host` outlives the result. `device` is this rank's alone.
//   patience: for all ranks of a group to come when it is made
// Throws ConfigError where ranks have other versions of NCCL, one that is too old, or this build
// has none; TransientError where they do not come together. What NCCL finds later ends the job: its
// group and NCCL's words are what `host` is told.
std::unique_ptr<World> make_nccl_world(
    World& host, Device device, std::chrono::milliseconds patience = std::chrono::minutes(5));

}  // namespace lockstep
