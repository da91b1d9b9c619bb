// Replay: whether steps that a run recorded come again, bit by bit, from one of its checkpoints.
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
  std::vector<RecordedStep> steps;  // behind it, without a gap
};
// From the newest of `checkpoints` (ascending) that `most` recorded steps follow; else from that
// which most follow. Nothing where none is followed.
std::optional<Replay> find_replay(const std::filesystem::path& metrics,
                                  std::span<const std::int64_t> checkpoints, std::int64_t most);

// Throws Error where they differ, with the values of both; ConfigError where the schedule does.
void check_again(const RecordedStep& recorded, const RecordedStep& now);

// What ranks agree to compute again; rank 0 has what the run recorded, and compares.
class ReplayComparison {
 public:
  ReplayComparison(std::int64_t from, std::int64_t steps, std::optional<Replay> recorded)
      : from_(from), steps_(steps), recorded_(std::move(recorded)) {}

  std::int64_t from() const { return from_; }    // the step of the checkpoint
  std::int64_t steps() const { return steps_; }  // behind it
  bool is_done() const { return done_ == steps_; }
  // The next step. Throws as check_again; after the last one the log says what was compared.
  void compare(RecordedStep now);

 private:
  std::int64_t from_, steps_, done_ = 0, hashes_ = 0;
  std::optional<Replay> recorded_;
};

// All ranks at once: up to `most` steps. Throws ConfigError where there is nothing to compare.
ReplayComparison agreed_replay(const RunDirectory& run, std::int64_t most, World& world);

}  // namespace lockstep
