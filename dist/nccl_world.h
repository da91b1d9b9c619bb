// NcclWorld connects ranks that have one GPU each, by NCCL. Another world brings the ranks together
// and carries the exchange that sets NCCL up. all_reduce gives every rank the same bits, but the
// bits depend on what NCCL chooses (nccl_in_words). Sums of gradients therefore do not use it
// (dist/reduction.h).
#pragma once

#include <chrono>
#include <memory>

#include "dist/comms.h"

namespace lockstep {

bool has_nccl();  // whether this build has NCCL

// The settings, besides the hosts, that NCCL's sums depend on: its version, and the variables that
// override its own choices, as in "2.28.9", "2.28.9 NCCL_ALGO=Ring". Requires a build with NCCL.
std::string nccl_in_words();

// Every rank of `host` calls it; `host` outlives the result. No other rank uses `device`.
//   patience: timeout for all ranks of a group to arrive when it is made
// Throws ConfigError if ranks have different versions of NCCL, if the version is too old, or if
// this build has no NCCL. Throws TransientError if the ranks do not come together. An error that
// NCCL detects later aborts the job: `host` gets the name of the group and NCCL's message.
std::unique_ptr<World> make_nccl_world(
    World& host, Device device, std::chrono::milliseconds patience = std::chrono::minutes(5));

}  // namespace lockstep
