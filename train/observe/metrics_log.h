// MetricsLog: metrics.jsonl, one flat object a step, units in the keys (docs/formats.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/observe/append_file.h"
#include "train/observe/step_report.h"

namespace lockstep {

// The report as one line of JSON, "step" first; a number that is not finite is null.
// `time_seconds`: since 1970.
std::string to_json_line(const StepReport& report, double time_seconds);

// What a run that comes to the same step again must come to again, bit by bit.
struct RecordedStep {
  std::int64_t step = 0;
  double learning_rate = 0;
  double loss = 0, grad_norm = 0;          // NaN: not finite
  std::optional<std::string> weight_hash;  // where it was computed
  friend bool operator==(const RecordedStep& a, const RecordedStep& b);
};
// Of the whole lines of metrics.jsonl those of steps after `after`, in their order; none where
// there is no such file. Throws DataError naming the line that is damaged.
std::vector<RecordedStep> recorded_steps(const std::filesystem::path& path, std::int64_t after);

class MetricsLog {
 public:
  // Opens or creates the file and cuts what stands behind the last whole line of `resumed_step`: a
  // run that goes on from there will write it again. Lines without a step stay.
  MetricsLog(const std::filesystem::path& path, std::int64_t resumed_step);

  std::int64_t kept_step() const { return kept_step_; }    // the last one that stayed; 0: none
  std::int64_t kept_steps() const { return kept_steps_; }  // how many have a line that stayed

  void append(const StepReport& report);
  void sync() { file_.sync(); }
  bool is_named() const { return file_.is_named(); }  // see AppendFile

 private:
  struct Kept {
    std::int64_t bytes = 0, step = 0, steps = 0;
  };
  static Kept kept(const std::filesystem::path& path, std::int64_t resumed_step);

  std::int64_t kept_step_ = 0, kept_steps_ = 0;
  AppendFile file_;
};

}  // namespace lockstep
