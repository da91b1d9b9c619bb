// RunRecord: the contents of a run directory. Its memory does not grow with the run, except for the
// entries of the ledger.
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

// Branch: the steps that a rollback abandoned.
struct Branch {
  int rollback = 0;  // K of metrics.before-K.jsonl
  Buckets steps, evaluations;
  std::int64_t first_step = 0, last_step = 0;
};

struct RunRecord {
  std::string name;  // name of the directory
  std::filesystem::path path;

  Buckets steps;                           // all lines
  Medians medians;                         // of all lines
  Buckets evaluations;                     // lines with a validation loss
  std::vector<Branch> branches;            // of the newest rollbacks, oldest first
  StepMetrics first, last;                 // lines, with time_seconds that never go back
  std::optional<StepMetrics> best;         // line with the lowest validation loss
  std::optional<StepMetrics> last_finite;  // last line with a finite loss
  std::int64_t skipped = 0;                // number of skipped updates
  std::int64_t lines = 0;                  // number of accepted lines

  std::optional<PlanFile> plan;
  std::optional<Goodput> goodput;
  std::vector<StartTimes> starts;
  std::vector<ConfigurationValue> configuration;
  std::vector<std::pair<std::string, std::string>> environment;

  std::vector<std::string> notes;  // omitted or unreadable data
};

// Reads a run. `most_points`: maximum points per curve, a multiple of 16; all branches together
// have at most as many. Throws DataError if metrics.jsonl is missing, unreadable or without steps.
// Errors in other files become notes.
RunRecord read_run(const std::filesystem::path& run, std::size_t most_points);

}  // namespace lockstep
