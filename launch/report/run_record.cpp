#include "launch/report/run_record.h"

#include <cmath>

#include "core/file.h"
#include "core/function_ref.h"
#include "train/observe/ledger.h"
#include "train/run_directory.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostEvaluations = 1024, kMostBranches = 8;

// OneClock corrects the times of lines for clocks that were set back, or forward by over a year.
class OneClock {
 public:
  double at(double time_seconds) {
    if (std::isnan(time_seconds)) return time_seconds;
    const double since = time_seconds - last_;
    if (std::isnan(last_))
      now_ = time_seconds;
    else if (since > 0 && since <= kMostGapSeconds)
      now_ += since;
    last_ = time_seconds;
    return now_;
  }

 private:
  double last_ = StepMetrics::kUnknown, now_ = StepMetrics::kUnknown;
};

void take(RunRecord& run, const StepMetrics& line) {
  if (run.lines++ == 0) run.first = line;
  run.last = line;
  run.steps.add(line);
  run.medians.add(line);
  if (line[Metric::skipped] == 1) ++run.skipped;
  if (!std::isnan(line[Metric::loss])) run.last_finite = line;
  const double validation = line[Metric::validation_loss];
  if (std::isnan(validation)) return;
  run.evaluations.add(line);
  if (!run.best || validation < (*run.best)[Metric::validation_loss]) run.best = line;
}

// Calls act for the steps of a file like metrics.jsonl, and returns notes about ignored lines.
// Throws DataError if there is no step. `if_empty`: what an empty file means.
std::vector<std::string> read_steps(const std::filesystem::path& path, const char* if_empty,
                                    FunctionRef<void(const StepMetrics&)> act) {
  const auto file = path.filename().string() + ": ";
  MetricsReader reader(path);
  const auto begin_anew = [&] { LOCKSTEP_FAIL(file, "replaced during a single read"); };
  OneClock clock;
  std::int64_t steps = 0;
  const auto act_in_time = [&](const StepMetrics& line) {
    ++steps;
    StepMetrics timed = line;
    timed[Metric::time_seconds] = clock.at(line[Metric::time_seconds]);
    act(timed);
  };
  reader.poll(begin_anew, act_in_time);
  const auto& held = reader.held_back();
  const bool is_alone = held && steps == 0;
  if (is_alone) act_in_time(*held);
  if (steps == 0)
    throw DataError(str(path.string(), ": no steps",
                        reader.left_out() > 0 ? "; " + reader.first_left_out() : std::string(),
                        reader.lines() == 0 ? if_empty : ""));
  std::vector<std::string> notes;
  if (reader.left_out() > 0)
    notes.push_back(str(file, reader.left_out(), " of ", reader.lines(),
                        " lines are ignored; the first: ", reader.first_left_out()));
  if (held && !is_alone)
    notes.push_back(str(file, "the last line is ignored: ", reader.why_held_back()));
  if (reader.unfinished_bytes() > 0)
    notes.push_back(str(file, "the last line is incomplete (", reader.unfinished_bytes(),
                        " bytes) and ignored"));
  return notes;
}

void read_metrics(RunRecord& run) {
  const auto path = run.path / "metrics.jsonl";
  if (!path_exists(path))
    throw DataError(str(run.path.string(),
                        ": no metrics.jsonl; expected the directory of a run, such as that of "
                        "`lockstep train --run`"));
  run.notes = read_steps(path, "; the run has not completed a step yet",
                         [&](const StepMetrics& line) { take(run, line); });
}

Branch read_branch(RunRecord& run, int rollback, const std::filesystem::path& path,
                   std::size_t most_points) {
  Branch branch{
      .rollback = rollback, .steps = Buckets(most_points), .evaluations = Buckets(most_points)};
  const auto notes = read_steps(path, "", [&](const StepMetrics& line) {
    if (branch.first_step == 0) branch.first_step = line.step;
    branch.last_step = line.step;
    branch.steps.add(line);
    if (!std::isnan(line[Metric::validation_loss])) branch.evaluations.add(line);
  });
  run.notes.insert(run.notes.end(), notes.begin(), notes.end());
  return branch;
}

// Reads an optional file of the directory; an error becomes a note.
template <class Act>
void attempt(RunRecord& run, Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    run.notes.emplace_back(str("omitted: ", error.what()));
  }
}

void read_branches(RunRecord& run, std::size_t most_points) {
  auto files = abandoned_metrics(run.path);
  if (const auto count = files.size(); count > kMostBranches) {
    files.erase(files.begin(), std::prev(files.end(), kMostBranches));
    run.notes.push_back(str("metrics.before-*.jsonl: only the newest ", kMostBranches, " of ",
                            count, " rollbacks are shown"));
  }
  for (const auto& [rollback, path] : files)
    attempt(run, [&] {
      run.branches.push_back(read_branch(run, rollback, path, most_points / kMostBranches));
    });
}

// Adds the program version of the last start that recorded one.
void add_version(RunRecord& run, const std::vector<LedgerLine>& ledger) {
  std::string version;
  for (const LedgerLine& line : ledger)
    if (!line.version.empty()) version = line.version;
  if (!version.empty()) run.environment.insert(run.environment.begin(), {"lockstep", version});
}

}  // namespace

RunRecord read_run(const std::filesystem::path& run, std::size_t most_points) {
  RunRecord record{.name = run_name(run),
                   .path = run,
                   .steps = Buckets(most_points),
                   .medians = {},
                   .evaluations = Buckets(std::min(most_points, kMostEvaluations)),
                   .branches = {},
                   .first = {},
                   .last = {},
                   .best = {},
                   .last_finite = {},
                   .plan = {},
                   .goodput = {},
                   .starts = {},
                   .configuration = {},
                   .environment = {},
                   .notes = {}};
  read_metrics(record);
  attempt(record, [&] { read_branches(record, most_points); });
  attempt(record, [&] { record.plan = read_plan_file(run / "plan.json"); });
  attempt(record, [&] { record.configuration = read_configuration(run); });
  attempt(record, [&] { record.environment = read_environment(run); });
  attempt(record, [&] {
    const auto lines = read_ledger(run / "ledger.jsonl");
    if (lines.empty()) return;
    record.goodput = goodput_of(lines);
    record.starts = starts_of(lines);
    add_version(record, lines);
  });
  return record;
}

}  // namespace lockstep
