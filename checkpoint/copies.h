// Copies of checkpoints, from one directory to another: from those that machines have of their own,
// which together hold all of its files, to one that all share; or between two that are shared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/checkpointer.h"

namespace lockstep {

class CheckpointCopies {
 public:
  // `world`, of all ranks, outlives this; each call is made by all of them.
  //   machine: the ranks that see the same files in `from`, this one too, ascending; none: all do
  CheckpointCopies(World& world, std::filesystem::path from, std::filesystem::path to,
                   std::vector<int> machine);

  const std::filesystem::path& from() const { return from_; }
  const std::filesystem::path& to() const { return to_; }

  struct Found {
    std::int64_t step = 0;
    bool was_copied = false;  // from machines: if it is not where it went to, a person took it away
  };
  // The steps of which all files are somewhere, in their sizes; newest first.
  std::vector<Found> found() const;

  // Copies one, each rank some of its files, verifying all bytes; then it exists in `to` as one
  // that was saved there, and others go that need not stay. Of a file that is damaged on one
  // machine another's is taken. Throws DataError where not all of its files are there and whole, or
  // where they cannot be written; `to` is then as it was.
  //   left_over   it comes late: later ones that are there stay, and nothing is deleted
  void copy(std::int64_t step, const Retention& retention, const std::vector<std::int64_t>& keep,
            bool left_over = false) const;

 private:
  struct Holding;
  class Plan;
  std::vector<Holding> holdings(std::optional<std::int64_t> of_step) const;  // at rank 0
  bool leads() const { return machine_.front() == ranks_.rank(); }           // for its machine
  std::filesystem::path mark(std::int64_t step) const;
  std::string copy_files(const std::filesystem::path& into, std::int64_t step,
                         const std::vector<std::string>& names) const;

  AllRanks ranks_;
  std::filesystem::path from_, to_;
  bool is_shared_;  // `from`
  std::vector<int> machine_;
};

}  // namespace lockstep
