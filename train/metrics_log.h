// MetricsLog: metrics.jsonl, one flat object a step, units in the keys (docs/formats.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "train/append_file.h"
#include "train/step_report.h"

namespace lockstep {

// The report as one line of JSON, "step" first; a number that is not finite is null.
// `time_seconds`: since 1970.
std::string to_json_line(const StepReport& report, double time_seconds);

class MetricsLog {
 public:
  // Opens or creates the file and cuts what stands behind the last whole line of `resumed_step`: a
  // run that goes on from there will write it again. Lines without a step stay.
  MetricsLog(const std::filesystem::path& path, std::int64_t resumed_step);

  void append(const StepReport& report);
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace lockstep
