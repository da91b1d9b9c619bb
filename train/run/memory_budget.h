// The memory of a run on a rank: what it takes, whether there is room for it, and what would fit.
#pragma once

#include <cstdint>

#include "train/config.h"
#include "train/step/host_state.h"
#include "train/step/memory.h"
#include "train/step/training.h"

namespace lockstep {

struct RunBytes {
  Arenas::Bytes training;
  std::int64_t batches = 0;     // that loaders read ahead, in the host's memory
  std::int64_t host_state = 0;  // likewise, see HostState
  HostState::Copies copies = HostState::Copies::none;
  Arenas::Bytes sum() const { return {training.device, training.pinned + batches + host_state}; }
};
// What rank `rank` of a run takes, with copies for checkpoints where there is room for them and
// `may_copy`.
RunBytes run_bytes(const Config& config, const MemoryRoom& room, bool may_copy = true,
                   int rank = 0);
// Throws ConfigError, with the mildest change that would do, where there is no room for it.
void require_room(const Config& config, const RunBytes& bytes, const MemoryRoom& room,
                  int rank = 0);

// Of all ranks together: each element of weights (in fp32, where there are masters) and moments
// once.
std::int64_t checkpoint_bytes(const Config& config);

// Where blocks can stay gathered (layout.keep_gathered) and there is memory for more of them: how
// many, and what that spares.
struct Keepable {
  std::int64_t blocks = 0;                                     // 0: there is nothing to gain
  Arenas::Bytes bytes;                                         // that a rank takes then
  std::int64_t gathered_bytes = 0, gathered_bytes_before = 0;  // that it receives in a step
};
Keepable keepable_blocks(const Config& config, const MemoryRoom& room, HostState::Copies copies,
                         int rank = 0);

}  // namespace lockstep
