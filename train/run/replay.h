// ReplayComparison checks that steps recomputed from a checkpoint equal the recorded steps of the
// run bit by bit.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dist/comms.h"
#include "train/observe/metrics_log.h"
#include "train/run_directory.h"

namespace lockstep {

struct Replay {
  std::int64_t from = 0;            // the step of the checkpoint
  std::vector<RecordedStep> steps;  // the recorded steps after it, without a gap
};
// Finds the newest of `checkpoints` (ascending) that `most` recorded steps follow, else the one
// with most recorded steps after it. Returns nothing if no recorded step follows a checkpoint.
std::optional<Replay> find_replay(const std::filesystem::path& metrics,
                                  std::span<const std::int64_t> checkpoints, std::int64_t most);

// Throws Error if the steps differ, with both values, and ConfigError if the learning rates differ.
void check_again(const RecordedStep& recorded, const RecordedStep& now);

// The steps that ranks agree to recompute. Rank 0 holds the recorded steps and compares.
class ReplayComparison {
 public:
  ReplayComparison(std::int64_t from, std::int64_t steps, std::optional<Replay> recorded)
      : from_(from), steps_(steps), recorded_(std::move(recorded)) {}

  std::int64_t from() const { return from_; }    // the step of the checkpoint
  std::int64_t steps() const { return steps_; }  // after it
  bool is_done() const { return done_ == steps_; }
  // Compares the next step. Throws as check_again; after the last step it logs a summary.
  void compare(RecordedStep now);

 private:
  std::int64_t from_, steps_, done_ = 0, hashes_ = 0;
  std::optional<Replay> recorded_;
};

// Chooses up to `most` steps after a checkpoint of step `first` or later. Collective. Throws
// ConfigError if there is no step to compare.
ReplayComparison agreed_replay(const RunDirectory& run, std::int64_t first, std::int64_t most,
                               World& world);

}  // namespace lockstep
