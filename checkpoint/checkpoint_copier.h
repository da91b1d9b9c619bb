// CheckpointCopier copies checkpoints from one directory to another. The source is either a local
// directory on each host (together they hold all files) or shared. The destination is shared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/checkpointer.h"

namespace lockstep {

class CheckpointCopier {
 public:
  // `world` has all ranks. It and the epoch of `to` must outlive this object. All ranks make each
  // call.
  //   machine: ranks that see the same files in `from`, with this one, ascending; empty: all ranks
  CheckpointCopier(World& world, std::filesystem::path from, CheckpointDirectory to,
                   std::vector<int> machine);

  const std::filesystem::path& from() const { return from_; }
  const std::filesystem::path& to() const { return to_.path; }

  // Copies one checkpoint; each rank copies some files and verifies all bytes. Then the checkpoint
  // exists in `to` as if saved there, and old ones are pruned. If a file is damaged on one host,
  // another host's copy is used. Throws DataError if a file is missing or damaged everywhere, or
  // cannot be written; `to` then stays unchanged.
  //   left_over: a late copy; later checkpoints in `to` stay, and none is pruned
  void copy(std::int64_t step, const Retention& retention, const std::vector<std::int64_t>& keep,
            bool left_over = false) const;

 private:
  struct Holding;
  class Plan;
  std::vector<Holding> holdings(std::int64_t step) const;           // at rank 0
  bool leads() const { return machine_.front() == ranks_.rank(); }  // first of its host
  std::filesystem::path mark(std::int64_t step) const;
  std::string copy_files(const std::filesystem::path& into, std::int64_t step,
                         const std::vector<std::string>& names) const;

  AllRanks ranks_;
  std::filesystem::path from_;
  CheckpointDirectory to_;
  bool is_shared_;  // `from` is shared by all ranks
  std::vector<int> machine_;
};

}  // namespace lockstep
