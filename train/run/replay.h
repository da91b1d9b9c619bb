// Replay: whether steps that a run recorded come again, bit by bit, from one of its checkpoints.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "core/function_ref.h"
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

// All ranks at once: compares up to `most` steps, and says so in the log. Throws Error where one
// differs, ConfigError where there is nothing to compare.
//   load     brings the state of a step's checkpoint, which `steps` are computed from
//   compute  does the next step; nothing: a signal came
void replay_steps(const RunDirectory& run, std::int64_t most, World& world,
                  FunctionRef<void(std::int64_t step, std::int64_t steps)> load,
                  FunctionRef<std::optional<RecordedStep>()> compute);

}  // namespace lockstep
