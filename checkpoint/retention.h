// Retention decides which checkpoints of a directory stay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/all_ranks.h"
#include "checkpoint/directory.h"
#include "checkpoint/host_ranks.h"

namespace lockstep {

// Checkpoints that stay when a newer one is saved.
struct Retention {
  int last = 0;                          // number of newest checkpoints; 0: all
  std::int64_t every = 0;                // steps that are multiples of this; 0: none
  std::filesystem::path copied_to = {};  // keep `every` steps only until they are copied here
  int best = 0;                          // number of checkpoints with the lowest validation_loss
};

// Steps that may be deleted. A step in `keep` stays; if it does not exist, the one before it stays.
// Checkpoints that have wrong sizes or cannot be opened also stay, for a person to inspect.
std::vector<std::int64_t> prunable_checkpoints(const std::filesystem::path& directory,
                                               const Retention& retention,
                                               const std::vector<std::int64_t>& keep = {});

// Deletes the prunable checkpoints and returns their steps. For one process that owns the
// directory. Reads the newest checkpoint back from disk first; throws DataError if it is damaged.
std::vector<std::int64_t> prune_checkpoints(const CheckpointDirectory& directory,
                                            const Retention& retention,
                                            const std::vector<std::int64_t>& keep = {});

// Called by all ranks after all have committed `newest`; each rank reads back a part of it. A
// checkpoint that cannot be deleted causes only a warning. Later checkpoints than `newest` stay.
//   machine: its own_directory tells whether each host has its own directory
void prune_checkpoints(
    const AllRanks& ranks, const HostRanks& machine, const CheckpointDirectory& directory,
    std::int64_t newest, const Retention& retention, const std::vector<std::int64_t>& keep,
    FunctionRef<void()> acted = [] {});

}  // namespace lockstep
