// The memory that a rank of a run needs, whether it fits, and which configuration would fit.
#pragma once

#include <cstdint>

#include "train/config.h"
#include "train/step/host_staging.h"
#include "train/step/memory.h"
#include "train/step/training.h"

namespace lockstep {

struct RunBytes {
  Arenas::Bytes training;
  std::int64_t nccl = 0;          // GPU memory of NCCL's groups (dist/nccl_memory.h)
  std::int64_t batches = 0;       // host memory that loaders read ahead into
  std::int64_t host_staging = 0;  // host memory of HostStaging
  HostStaging::Copies copies = HostStaging::Copies::none;
  Arenas::Bytes sum() const {
    return {training.device + nccl, training.pinned + batches + host_staging};
  }
};
// The memory that rank `rank` needs. If `may_copy` and they fit, it includes checkpoint staging
// copies, whose size depends on what the rank saves.
RunBytes run_bytes(const Config& config, const MemoryRoom& room, bool may_copy = true,
                   int rank = 0);
// Throws ConfigError if `bytes` do not fit, with the mildest change of the configuration that fits.
void require_room(const Config& config, const RunBytes& bytes, const MemoryRoom& room);

// Bytes of a checkpoint of all ranks: each element of weights and moments once. Weights are in fp32
// if there are master weights.
std::int64_t checkpoint_bytes(const Config& config);

// The blocks that could stay gathered (layout.keep_gathered) in the free memory, and the all-gather
// traffic that this saves.
struct Keepable {
  std::int64_t blocks = 0;                                     // 0: nothing to gain
  Arenas::Bytes bytes;                                         // memory of a rank then
  std::int64_t gathered_bytes = 0, gathered_bytes_before = 0;  // received in a step
};
Keepable keepable_blocks(const Config& config, const MemoryRoom& room, HostStaging::Copies copies);

}  // namespace lockstep
