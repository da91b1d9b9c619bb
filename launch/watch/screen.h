// What `lockstep watch` shows of a run, as lines of text.
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
  std::optional<StepMetrics> last;        // nothing: no step is done yet
  std::optional<StepMetrics> evaluation;  // the last line with a validation loss
  std::optional<std::int64_t> planned_steps;
  std::optional<PlanFile> plan;
  StepTimes step;                         // typical ones of the last steps
  std::optional<LedgerLine> end;          // of its last start
  std::optional<double> started_seconds;  // since 1970: of a start that has done no step yet
  std::string note;                       // what is wrong with a file; empty: nothing
  double now_seconds = 0;                 // since 1970
  bool is_there = false;                  // metrics.jsonl
  double share_read = 1;                  // of it; below 1: more is there than was read yet
};

// At most `rows` lines, each of at most `columns` columns; escape sequences take none.
std::vector<std::string> screen_of(const WatchedRun& run, int columns, int rows, Style style);

// The same without a curve, a line a number: for what is no terminal.
std::vector<std::string> lines_of(const WatchedRun& run);

}  // namespace lockstep
