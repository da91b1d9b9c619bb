// The GPU memory that NCCL takes for the groups of a rank, besides the run's own memory. The
// formulas are those of docs/parallelism.md, "Memory of NCCL": upper bounds from the sources of
// NCCL 2.28.9 and 2.30.7. Nothing was measured yet.
#pragma once

#include <cstdint>

#include "dist/comms.h"

namespace lockstep {

// Most channels of a group (ncclConfig_t::maxCTAs). A channel holds a multiprocessor during a
// collective, and memory from the start on.
int nccl_channels(Carries carries);

// Most multiprocessors that a collective of the shard or replicate axis holds beside compute.
// Inside one domain copy engines move the data, and hold none. Reduce::nccl always adds by kernels,
// which hold some. Tensor ranks in several domains are not counted.
int held_multiprocessors(const Comms& comms);

// Bytes of a group whose ranks are in `domains` NVLink domains; 0 if it has one rank. Group::other:
// the communicator from which the groups are split. In one domain groups other than Group::all need
// no buffers, because NCCL reads and writes the windows of the run's memory.
std::int64_t nccl_group_bytes(Group group, int ranks, int domains);

// Bytes of all groups of a rank of `mesh`, whose NVLink domains have `domain_ranks` ranks each.
std::int64_t nccl_memory_bytes(const Mesh& mesh, int domain_ranks, Reduce reduce = Reduce::fp32);

}  // namespace lockstep
