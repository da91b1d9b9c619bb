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
  // "from_step 100", "skip_steps 120..130", "extend"; of a live request (train/run/requests.h)
  // "request 7 set", "request 7 save", "request 7 release", "request 7 from_step 100"
  std::string request;
  // skip_steps: the steps whose samples are not read.
  std::int64_t first_skipped = 0, last_skipped = 0;
  // extend: the learning rate after at_step, the peak of the schedule that begins there, and the
  // number of steps that the run had before.
  double rate = 0, peak = 0;
  std::int64_t steps_before = 0;
  std::vector<std::string> settings{};  // set: "KEY=VALUE", as a [[phase]] after at_step

  friend bool operator==(const Amendment&, const Amendment&) = default;
};
using Amendments = std::vector<Amendment>;  // in the order of their requests

Json to_json(const Amendments& amendments);
Amendments amendments_in(const Json& about);  // none if a checkpoint is older than amendments
const Amendment* find(const Amendments& amendments,
                      const std::string& request);  // the last; or null

// The number of the live request of a text such as "request 7 set"; 0: it is of a flag.
std::int64_t request_number(const std::string& request);
// The amendments of `set`, which the configuration is resolved with.
Amendments changes_of(const Amendments& amendments);
// The steps whose checkpoints stay because `save` wrote them, until they are released.
std::vector<std::int64_t> kept_steps(const Amendments& amendments);
void forget_saves_after(std::int64_t step, Amendments& amendments);  // by a rollback

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
  static StepRange parse(const std::string& text,
                         const char* flag = "--skip-steps");  // throws UsageError
  friend bool operator==(const StepRange&, const StepRange&) = default;
};

// A rollback: the step to go back to, and the steps whose samples are then skipped.
struct Rollback {
  std::int64_t step = 0;
  std::optional<StepRange> skip{};
  std::int64_t number = 0;  // of the live request; 0: of the flags

  std::string request() const;
  // The rollback of a live request, from the text of request(); nullopt for other texts.
  static std::optional<Rollback> parse(const std::string& request);
};

// The amendments of --from-step (with --skip-steps, if both are given), of --skip-steps, and of
// --extend; of the live requests `set`, `save` and `release` ("request 7 save").
Amendment rollback_to(const Rollback& rollback);
Amendment skip_of(const StepRange& steps);
Amendment extension_at(std::int64_t step, double rate, double peak, std::int64_t steps_before);
Amendment amendment_of(std::int64_t number, const std::string& command, std::int64_t at_step,
                       std::vector<std::string> settings = {});

// RUN/amendments.json: the amendments of the run, also those that no checkpoint has yet.
struct AmendmentFile {
  Amendments amendments;
  // Request of a rollback or of a live change that is under way; "": none.
  std::string unfinished;

  static std::optional<AmendmentFile> read(const std::filesystem::path& path);  // absent: none
  void write(const std::filesystem::path& path) const;
  // The amendments of a checkpoint, and those that the file has besides: of flags and of live
  // requests; only_changes: only those of `set`.
  Amendments with(const Amendments& of_checkpoint, bool only_changes = false) const;
};

// Returns `history` without the samples of the steps after `step` that `amendments` skip. The run
// is at `step` and at sample `sample`.
//   step_samples: number of samples of a step
DataHistory with_skips(DataHistory history, const Amendments& amendments, std::int64_t step,
                       std::int64_t sample, std::int64_t step_samples);

}  // namespace lockstep
