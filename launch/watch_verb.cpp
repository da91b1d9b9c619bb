#include "launch/watch_verb.h"

#include <clocale>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <iostream>
#include <langinfo.h>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/median.h"
#include "core/wall_clock.h"
#include "launch/report/run_files.h"
#include "launch/watch/screen.h"
#include "launch/watch/terminal.h"
#include "train/metrics_reader.h"
#include "train/run_directory.h"

namespace lockstep {
namespace {

// A run's directory, looked at again and again.
class Watched {
 public:
  explicit Watched(const std::filesystem::path& run)
      : directory_(run), reader_(run / "metrics.jsonl", kBytesOfLook) {
    run_.name = run_name(run);
    run_.path = run.string();
  }

  // Takes as much of metrics.jsonl at once as takes no longer than a key may wait.
  const WatchedRun& look() {
    run_.is_there = reader_.poll([&] { forget(); }, [&](const StepMetrics& line) { take(line); });
    run_.share_read = reader_.share_read();
    run_.note.clear();
    if (reader_.left_out() > 0)
      run_.note =
          str(reader_.left_out(),
              " lines of metrics.jsonl are left out; the first: ", reader_.first_left_out());
    attempt([&] { run_.plan = read_plan_file(directory_ / "plan.json"); });
    attempt([&] { run_.planned_steps = planned_steps(read_configuration(directory_)); });
    attempt([&] { run_.end = read_last_end(directory_ / "ledger.jsonl"); });
    run_.step = times_of_step(run_.plan ? &*run_.plan : nullptr,
                              [&](Metric metric) { return recently(metric); });
    run_.now_seconds = seconds_since_1970();
    return run_;
  }

 private:
  static constexpr std::size_t kRecent = 128;
  static constexpr std::int64_t kBytesOfLook = std::int64_t{64} << 20;

  void forget() {
    run_.steps = WatchedRun().steps;
    run_.last.reset();
    run_.evaluation.reset();
    recent_.clear();
  }

  void take(const StepMetrics& line) {
    run_.steps.add(line);
    run_.last = line;
    if (!std::isnan(line[Metric::validation_loss])) run_.evaluation = line;
    recent_.push_back(line);
    if (recent_.size() > kRecent) recent_.pop_front();
  }

  // The median over the last steps; of checkpoints, which few of them have, the mean.
  double recently(Metric metric) const {
    if (metric == Metric::checkpoint) return run_.steps.mean(metric);
    std::vector<double> values;
    for (const StepMetrics& line : recent_)
      if (!std::isnan(line[metric])) values.push_back(line[metric]);
    return median(std::move(values));
  }

  template <class Act>
  void attempt(Act&& act) {
    try {
      act();
    } catch (const Error& error) {  // a curve is worth seeing without it
      run_.note = error.what();
    }
  }

  std::filesystem::path directory_;
  MetricsReader reader_;
  std::deque<StepMetrics> recent_;
  WatchedRun run_;
};

int print_once(Watched& watched) {
  const WatchedRun& run = watched.look();
  while (run.share_read < 1)
    watched.look();
  if (!run.last)
    throw DataError(str(run.path,
                        run.is_there ? ": no step is done yet" : ": no metrics.jsonl is there yet",
                        "; on a terminal, watch waits for it"));
  for (const auto& line : lines_of(run))
    std::cout << line << "\n";
  return 0;
}

// As the terminal's user has it.
Style style_here() {
  const char* no_colour = std::getenv("NO_COLOR");  // no-color.org
  std::setlocale(LC_CTYPE, "");
  return {.colour = no_colour == nullptr || *no_colour == '\0',
          .utf8 = std::string_view(nl_langinfo(CODESET)) == "UTF-8"};
}

}  // namespace

int run_watch(const WatchVerbOptions& options) {
  Watched watched(options.run);
  if (!Terminal::is_there()) return print_once(watched);
  const auto style = style_here();
  Terminal terminal;
  for (;;) {
    const WatchedRun& run = watched.look();
    const auto size = Terminal::size();
    terminal.show(screen_of(run, size.columns, size.rows, style), size.rows);
    constexpr double kSecondsBetween = 1;
    if (const auto code = terminal.wait(run.share_read < 1 ? 0 : kSecondsBetween)) return *code;
  }
}

}  // namespace lockstep
