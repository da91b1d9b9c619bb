// What `lockstep watch` shows of a run, as lines of text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/report/buckets.h"
#include "launch/report/step_parts.h"
#include "train/ledger.h"
#include "train/plan/plan_file.h"

namespace lockstep {

struct WatchedRun {
  std::string name, path;
  Buckets steps{2048};
  std::optional<StepMetrics> last;        // nothing: no step is done yet
  std::optional<StepMetrics> evaluation;  // the last line with a validation loss
  std::optional<std::int64_t> planned_steps;
  std::optional<PlanFile> plan;
  std::vector<StepPart> parts;    // typical ones of the last steps
  std::optional<LedgerLine> end;  // of its last start
  std::string note;               // what is wrong with a file; empty: nothing
  double now_seconds = 0;         // since 1970
  bool is_there = false;          // metrics.jsonl
};

// In colours, where asked for: escape sequences that take no place. At most `rows` lines, each of
// at most `columns` characters (names of runs may have wider ones: the terminal cuts them).
std::vector<std::string> screen_of(const WatchedRun& run, int columns, int rows, bool colour);

// The same without a curve, a line a number: for what is no terminal.
std::vector<std::string> lines_of(const WatchedRun& run);

}  // namespace lockstep
