// MetricsLog writes metrics.jsonl: one flat object per step, with units in the keys
// (docs/formats.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/observe/append_only_file.h"
#include "train/observe/step_report.h"
#include "train/run_directory.h"

namespace lockstep {

// Returns the report as one line of JSON, "step" first. A number that is not finite is null.
// `time_seconds`: seconds since 1970.
std::string to_json_line(const StepReport& report, double time_seconds);

// Values of a step that a replay must reproduce, bit by bit.
struct RecordedStep {
  std::int64_t step = 0;
  double learning_rate = 0;
  double loss = 0, grad_norm = 0;          // NaN: not finite
  std::optional<std::string> weight_hash;  // if it was computed
  friend bool operator==(const RecordedStep& a, const RecordedStep& b);
};
// Reads the complete lines of metrics.jsonl for steps after `after`, in order. Returns none if the
// file does not exist. Throws DataError naming a damaged line.
std::vector<RecordedStep> recorded_steps(const std::filesystem::path& path, std::int64_t after);

// Moves the complete lines of metrics.jsonl for steps after `step` to metrics.before-K.jsonl, with
// the next free K. If it was interrupted, it can be called again.
void abandon_metrics_after(const RunDirectory& run, std::int64_t step);

// Copies the complete lines up to the first one of a step after `step`.
void copy_metrics(const std::filesystem::path& from, const std::filesystem::path& to,
                  std::int64_t step);

class MetricsLog {
 public:
  // Creates the file, or replaces it by a copy up to the last complete line of `resumed_step`,
  // because the resumed run writes the later steps again. Lines without a step are kept.
  MetricsLog(const std::filesystem::path& path, std::int64_t resumed_step);

  std::int64_t kept_step() const { return kept_.step; }    // last step that was kept; 0: none
  std::int64_t kept_steps() const { return kept_.steps; }  // number of steps that were kept

  void append(const StepReport& report);
  void sync() { file_.sync(); }
  bool is_named() const { return file_.is_named(); }  // see AppendOnlyFile

 private:
  struct Kept {
    std::int64_t bytes = 0, step = 0, steps = 0;
  };
  static Kept renew(const std::filesystem::path& path, std::int64_t resumed_step);

  Kept kept_;
  AppendOnlyFile file_;
};

}  // namespace lockstep
