// Amendments: changes of a run that its configuration alone does not describe. Each checkpoint
// holds those of its run (`amendments`, docs/formats.md). A command that is given again finds its
// amendment there, and is not applied twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "data/history.h"
#include "train/schedule.h"

namespace lockstep {

struct Amendment {
  std::int64_t at_step = 0;  // the steps after it are changed
  std::string request;       // "from_step 100", "skip_steps 120..130", "extend"
  // skip_steps: the steps whose samples are not read.
  std::int64_t first_skipped = 0, last_skipped = 0;
  // extend: the learning rate after at_step, the peak of the schedule that begins there, and the
  // number of steps that the run had before.
  double rate = 0, peak = 0;
  std::int64_t steps_before = 0;

  friend bool operator==(const Amendment&, const Amendment&) = default;
};
using Amendments = std::vector<Amendment>;  // in the order of their requests

Json to_json(const Amendments& amendments);
Amendments amendments_in(const Json& about);  // none if a checkpoint is older than amendments
const Amendment* find(const Amendments& amendments,
                      const std::string& request);  // the last; or null

// The part of the schedule that `step` belongs to: of the configuration, or one that began in a
// later phase or with an extension.
LearningRate schedule_at(const Config& config, const Amendments& amendments, std::int64_t step);
inline double learning_rate_at(const Config& config, const Amendments& amendments,
                               std::int64_t step) {
  return schedule_at(config, amendments, step).at(step);
}

// Steps FIRST..LAST of --skip-steps.
struct StepRange {
  std::int64_t first = 0, last = 0;
  static StepRange parse(const std::string& text);  // throws UsageError
};

// The amendments of --from-step (with --skip-steps, if both are given), of --skip-steps, and of
// --extend.
Amendment rollback_to(std::int64_t step, const std::optional<StepRange>& skip = std::nullopt);
Amendment skip_of(const StepRange& steps);
Amendment extension_at(std::int64_t step, double rate, double peak, std::int64_t steps_before);

// RUN/amendments.json: the amendments of the run, also those that no checkpoint has yet.
struct AmendmentFile {
  Amendments amendments;
  std::string unfinished;  // request of a rollback that is under way; "": none

  static std::optional<AmendmentFile> read(const std::filesystem::path& path);  // absent: none
  void write(const std::filesystem::path& path) const;
  // The amendments of a checkpoint, and those of flags that the file has besides.
  Amendments with(const Amendments& of_checkpoint) const;
};

// Returns `history` without the samples of the steps after `step` that `amendments` skip. The run
// is at `step` and at sample `sample`.
//   step_samples: number of samples of a step
DataHistory with_skips(DataHistory history, const Amendments& amendments, std::int64_t step,
                       std::int64_t sample, std::int64_t step_samples);

}  // namespace lockstep
