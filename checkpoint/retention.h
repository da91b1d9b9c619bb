// Which checkpoints of a directory stay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/all_ranks.h"
#include "checkpoint/directory.h"
#include "checkpoint/machine_ranks.h"

namespace lockstep {

// Which stay when a newer one is saved.
struct Retention {
  int last = 0;                          // the newest so many; 0: all
  std::int64_t every = 0;                // those of a multiple of so many steps; 0: none for that
  std::filesystem::path copied_to = {};  // of those of `every`, only what is not there yet
  int best = 0;                          // the so many of the lowest `validation_loss`
};

// Those that need not stay, of those whose sizes are right, but never those of the steps `keep`, or
// where one is not there the one before it.
// Damaged ones, and those that cannot be opened, are for a person to look at.
std::vector<std::int64_t> prunable_checkpoints(const std::filesystem::path& directory,
                                               const Retention& retention,
                                               const std::vector<std::int64_t>& keep = {});

// Of one process, which has the directory for itself: deletes those, and returns them; nothing
// unless the newest, read back from the disk, is whole (else throws DataError).
std::vector<std::int64_t> prune_checkpoints(const std::filesystem::path& directory,
                                            const Retention& retention,
                                            const std::vector<std::int64_t>& keep = {});

// All ranks at once, when all have committed `newest`, each reading back a part of it. A checkpoint
// that cannot be deleted is only warned of.
//   machine: whether the directory is its own
void prune_checkpoints(
    const AllRanks& ranks, const MachineRanks& machine, const std::filesystem::path& directory,
    std::int64_t newest, const Retention& retention, const std::vector<std::int64_t>& keep,
    FunctionRef<void()> acted = [] {});

}  // namespace lockstep
