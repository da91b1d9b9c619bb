// RunRecord: all that a run's directory says of it, in memory that does not grow with the run but
// for what its ledger has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/report/buckets.h"
#include "launch/report/medians.h"
#include "launch/report/run_files.h"
#include "train/observe/ledger.h"
#include "train/observe/plan_file.h"

namespace lockstep {

struct RunRecord {
  std::string name;  // of the directory
  std::filesystem::path path;

  Buckets steps;                           // every line
  Medians medians;                         // of them
  Buckets evaluations;                     // those with a validation loss
  StepMetrics first, last;                 // lines; their time_seconds never go back
  std::optional<StepMetrics> best;         // the line of the lowest validation loss
  std::optional<StepMetrics> last_finite;  // the last line with a loss
  std::int64_t skipped = 0;                // steps that changed nothing
  std::int64_t lines = 0;                  // that were read, not those left out

  std::optional<PlanFile> plan;
  std::optional<Goodput> goodput;
  std::vector<StartTimes> starts;
  std::vector<ConfigurationValue> configuration;
  std::vector<std::pair<std::string, std::string>> environment;

  std::vector<std::string> notes;  // what was left out, or could not be read
};

// `most_points`: of a curve, even. Throws DataError where metrics.jsonl is not there, cannot be
// read or holds no step; what is wrong with another file is a note.
RunRecord read_run(const std::filesystem::path& run, std::size_t most_points);

}  // namespace lockstep
