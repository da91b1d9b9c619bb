#include <clocale>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <iostream>
#include <langinfo.h>
#include <memory>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/median.h"
#include "core/wall_clock.h"
#include "launch/report/medians.h"
#include "launch/report/run_files.h"
#include "launch/verb.h"
#include "launch/watch/line.h"
#include "launch/watch/screen.h"
#include "launch/watch/terminal.h"
#include "train/observe/metrics_reader.h"
#include "train/run_directory.h"

namespace lockstep {
namespace {

struct WatchVerbOptions {
  std::string run;  // directory of the run, which need not exist yet
};

// Watched polls the directory of a run.
class Watched {
 public:
  explicit Watched(const std::filesystem::path& run)
      : directory_(run), reader_(run / "metrics.jsonl", kBytesOfLook) {
    run_.name = run_name(run);
    run_.path = run.string();
  }

  // Reads a limited part of metrics.jsonl at once, so that keys are answered quickly.
  const WatchedRun& look() {
    run_.is_there = reader_.poll([&] { forget(); }, [&](const StepMetrics& line) { take(line); });
    run_.share_read = reader_.share_read();
    run_.note = note_of_metrics();
    attempt([&] { run_.plan = read_plan_file(directory_ / "plan.json"); });
    attempt([&] { run_.planned_steps = planned_steps(read_configuration(directory_)); });
    attempt([&] { take(read_last_line(directory_ / "ledger.jsonl")); });
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

  void take(const std::optional<LedgerLine>& last) {
    using Kind = LedgerLine::Kind;
    run_.end.reset();
    run_.started_seconds.reset();
    if (last && last->kind == Kind::end) run_.end = last;
    if (last && last->kind == Kind::start) run_.started_seconds = last->time_seconds;
  }

  std::string note_of_metrics() const {
    if (reader_.share_read() == 1 && reader_.held_back())
      return str("the last line of metrics.jsonl is ignored: ", reader_.why_held_back());
    if (reader_.left_out() > 0)
      return str(reader_.left_out(),
                 " lines of metrics.jsonl are ignored; the first: ", reader_.first_left_out());
    return "";
  }

  // The median over the last steps; for metrics that few steps have, the mean over all steps.
  double recently(Metric metric) const {
    if (!Medians::has(metric)) return run_.steps.mean(metric);
    std::vector<double> values;
    for (const StepMetrics& line : recent_)
      if (!std::isnan(line[metric])) values.push_back(line[metric]);
    return median(std::move(values));
  }

  template <class Act>
  void attempt(Act&& act) {
    try {
      act();
    } catch (const Error& error) {  // the screen is useful without this file
      run_.note = error.what();
    }
  }

  std::filesystem::path directory_;
  MetricsReader reader_;
  std::deque<StepMetrics> recent_;
  WatchedRun run_;
};

std::vector<std::string> lines_once(Watched& watched) {
  const WatchedRun& run = watched.look();
  while (run.share_read < 1)
    watched.look();
  if (!run.last)
    throw DataError(str(
        run.path, run.is_there ? ": no completed step yet" : ": no metrics.jsonl yet",
        "; on a terminal, watch waits for it", run.note.empty() ? "" : "; " + printable(run.note)));
  return lines_of(run);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// True for a UTF-8 locale. If the locale is not installed (as over ssh from another host), its name
// decides.
bool is_utf8_here() {
  if (std::setlocale(LC_CTYPE, "") != nullptr)
    return std::string_view(nl_langinfo(CODESET)) == "UTF-8";
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (locale.empty()) locale = variable(name);
  return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
}

// The style that the environment of the user asks for.
Style style_here() {
  return {.colour = variable("NO_COLOR").empty(), .utf8 = is_utf8_here()};  // no-color.org
}

// Shows a run until q or Ctrl-C, and returns the exit code of that key. If standard output is not a
// terminal, it prints the state once. Throws DataError if the run cannot be read, or has no step
// yet and there is no terminal.
int run_watch(const WatchVerbOptions& options) {
  Watched watched(options.run);
  if (!Terminal::is_there()) {
    for (const auto& line : lines_once(watched))
      std::cout << line << "\n";
    return 0;
  }
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

}  // namespace

std::vector<std::string> state_of_run(const std::filesystem::path& run) {
  Watched watched(run);
  return lines_once(watched);
}

Verb watch_verb() {
  auto o = std::make_shared<WatchVerbOptions>();
  return {"watch",
          "show the progress of a run in the terminal, until q or Ctrl-C",
          {{"run", &o->run, "Run", "RUN",
            "directory of the run, which need not exist yet; if the output is not a terminal, the "
            "state is printed once",
            kRequired}},
          [o] { return run_watch(*o); }};
}

}  // namespace lockstep
