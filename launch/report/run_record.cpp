#include "launch/report/run_record.h"

#include <cmath>

#include "core/file.h"
#include "train/observe/ledger.h"
#include "train/run_directory.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostEvaluations = 1024;

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

void read_metrics(RunRecord& run) {
  const auto path = run.path / "metrics.jsonl";
  MetricsReader reader(path);
  const auto begin_anew = [&] { LOCKSTEP_FAIL("metrics.jsonl was replaced during a single read"); };
  OneClock clock;
  const auto act = [&](const StepMetrics& line) {
    StepMetrics timed = line;
    timed[Metric::time_seconds] = clock.at(line[Metric::time_seconds]);
    take(run, timed);
  };
  if (!reader.poll(begin_anew, act))
    throw DataError(str(run.path.string(),
                        ": no metrics.jsonl; expected the directory of a run, such as that of "
                        "`lockstep train --run`"));
  const auto& held = reader.held_back();
  const bool is_alone = held && run.lines == 0;
  if (is_alone) act(*held);
  if (run.lines == 0)
    throw DataError(str(path.string(), ": no steps",
                        reader.left_out() > 0 ? "; " + reader.first_left_out() : std::string(),
                        reader.lines() == 0 ? "; the run has not completed a step yet" : ""));
  if (reader.left_out() > 0)
    run.notes.push_back(str("metrics.jsonl: ", reader.left_out(), " of ", reader.lines(),
                            " lines are ignored; the first: ", reader.first_left_out()));
  if (held && !is_alone)
    run.notes.push_back(str("metrics.jsonl: the last line is ignored: ", reader.why_held_back()));
  if (reader.unfinished_bytes() > 0)
    run.notes.push_back(str("metrics.jsonl: the last line is incomplete (",
                            reader.unfinished_bytes(), " bytes) and ignored"));
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
