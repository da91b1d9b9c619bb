// The screen of `lockstep watch`, as lines of text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/report/buckets.h"
#include "launch/report/step_parts.h"
#include "launch/watch/line.h"
#include "train/observe/ledger.h"
#include "train/observe/plan_file.h"

namespace lockstep {

struct WatchedRun {
  std::string name, path;
  Buckets steps{2048};
  std::optional<StepMetrics> last;        // nullopt: no completed step yet
  std::optional<StepMetrics> evaluation;  // last line with a validation loss
  std::optional<std::int64_t> planned_steps;
  std::optional<PlanFile> plan;
  StepTimes step;                         // typical times of the last steps
  std::optional<LedgerLine> end;          // end of the last start
  std::optional<double> started_seconds;  // since 1970; time of a start without steps so far
  std::string note;                       // error in a file; empty: none
  double now_seconds = 0;                 // since 1970
  bool is_there = false;                  // metrics.jsonl exists
  double share_read = 1;                  // share of metrics.jsonl that was read
};

// At most `rows` lines of at most `columns` columns; escape sequences take no columns.
std::vector<std::string> screen_of(const WatchedRun& run, int columns, int rows, Style style);

// The same without a curve, one number per line, for outputs that are not terminals.
std::vector<std::string> lines_of(const WatchedRun& run);

}  // namespace lockstep
