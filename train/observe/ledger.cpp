#include "train/observe/ledger.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/file.h"
#include "core/function_ref.h"
#include "core/json.h"
#include "core/log.h"
#include "core/units.h"
#include "core/wall_clock.h"

namespace lockstep {
namespace {

using Kind = LedgerLine::Kind;

constexpr std::int64_t kMostLedgerBytes = std::int64_t{1}
                                          << 30;  // decades, with a line every ten seconds
constexpr std::int64_t kMostStep = std::numeric_limits<std::int64_t>::max() / 2;
constexpr double kMostSeconds = 1e12;
constexpr auto kBetweenLines = std::chrono::seconds(10);
constexpr std::size_t kMostWhyBytes = 1000;
constexpr std::int64_t kMostLastBytes = 1 << 18;  // of a last line, such as a start of 4,000 hosts

double seconds_at(const Json& line, const char* key) {
  const double seconds = line.at(key).as_double();
  if (!(seconds >= 0 && seconds <= kMostSeconds))
    throw DataError(str(key, " is ", seconds, ", expected seconds of at least 0"));
  return seconds;
}

void read_steps(const Json& json, LedgerLine& line) {
  line.first = integer_at(json, "first", 1, kMostStep);
  line.last = integer_at(json, "last", 0, kMostStep);
  if (line.last < line.first - 1)
    throw DataError(
        str("last is ", line.last, ", expected at least first - 1, which is ", line.first - 1));
  line.step_seconds = seconds_at(json, "step_seconds");
  line.data_seconds = seconds_at(json, "data_seconds");
  line.checkpoint_seconds = seconds_at(json, "checkpoint_seconds");
  line.evaluation_seconds = seconds_at(json, "evaluation_seconds");
  if (line.data_seconds > line.step_seconds)
    throw DataError(str("data_seconds is ", line.data_seconds,
                        ", expected at most step_seconds, which is ", line.step_seconds));
}

std::optional<LedgerLine> line_of(const Json& json) {
  LedgerLine line;
  line.time_seconds = seconds_at(json, "time_seconds");
  const std::string& event = text_at(json, "event");
  if (event == "steps") {
    line.kind = Kind::steps;
    read_steps(json, line);
  } else if (event == "start") {
    line.step = integer_at(json, "step", 0, kMostStep);
    line.ranks = integer_at(json, "ranks", 1, std::numeric_limits<int>::max());
    for (const Json& host : json.at("hosts").as_array())
      line.hosts.push_back(host.as_string());
    if (json.find("version") != nullptr) line.version = text_at(json, "version");
    if (json.find("restart") != nullptr) line.restart = restart_at(json, "restart");
    if (json.find("meet_seconds") != nullptr)
      line.starting = {.meet = seconds_at(json, "meet_seconds"),
                       .load = seconds_at(json, "load_seconds")};
  } else if (event == "end") {
    line.kind = Kind::end;
    line.step = integer_at(json, "step", 0, kMostStep);
    line.exit_code = static_cast<int>(integer_at(json, "exit_code", 0, 255));
    line.why = text_at(json, "why");
  } else {
    return std::nullopt;
  }
  return line;
}

// Adds lines one by one.
class Account {
 public:
  void add(const LedgerLine& line) {
    LOCKSTEP_CHECK(!starts.empty() || line.kind == Kind::start, "a ledger begins with a start");
    // A clock was wrong if time went back, or forward by years.
    const double since = starts.empty() ? 0 : std::max(line.time_seconds - last_seconds_, 0.0);
    if (since > kMostGapSeconds) {
      is_clock_wrong = true;
      add_after(line, 0);
    } else {
      add_after(line, since);
    }
  }

  Goodput sum;
  std::vector<StartTimes> starts;
  bool is_clock_wrong = false;  // by more than a year between two lines

 private:
  void add_after(const LedgerLine& line, double since) {
    last_seconds_ = line.time_seconds;
    switch (line.kind) {
      case Kind::start: start(line, since); break;
      case Kind::steps: steps(line, since); break;
      case Kind::end: end(line, since); break;
    }
  }

  // Steps of a line, productive so far, with the saves and evaluations after them.
  struct Counted {
    std::size_t start = 0;  // an index of `starts`
    std::int64_t first = 0, last = 0;
    double end_seconds = 0;
    double computing_seconds = 0, seconds = 0;  // computation; all of the line's time
  };

  void start(const LedgerLine& line, double since) {
    const double now = starts.empty() ? line.time_seconds : starts.back().end_seconds + since;
    sum.idle_seconds += since;
    sum.restarts += starts.empty() ? 0 : 1;
    stepping_ = false;
    starting_ = line.starting;
    const double replayed_before = sum.replayed_seconds;
    while (!counted_.empty() && counted_.back().last > line.step)
      take_back(line.step);
    starts.push_back({.begin_seconds = now,
                      .first_step_seconds = now,
                      .replayed_from_seconds = now,
                      .end_seconds = now,
                      .from_step = line.step,
                      .last_step = line.step,
                      .ranks = line.ranks,
                      .hosts = line.hosts,
                      .replays_seconds = sum.replayed_seconds - replayed_before});
    add_phases([&](RestartPhases& phases) { phases.add_gap(now - step_end_, line.restart); });
    step_end_ = now;
  }

  // Calls add() on the phases of the newest start and of all, if it is a restart.
  void add_phases(FunctionRef<void(RestartPhases&)> add) {
    if (starts.size() == 1) return;
    add(starts.back().phases);
    add(sum.phases);
  }

  // The first step of the newest start begins, or the start ends without one.
  void first_step(double at) {
    starts.back().first_step_seconds = at;
    add_phases([&](RestartPhases& phases) { phases.add_start(at - step_end_, starting_); });
    step_end_ = at;
    starting_ = {};  // a second `end` adds only the time after the first
  }

  // Takes back the last steps after `step`. Each step of a line counts equally.
  void take_back(std::int64_t step) {
    Counted& steps = counted_.back();
    const bool whole = steps.first > step;
    const double share = whole ? 1
                               : static_cast<double>(steps.last - step) /
                                     static_cast<double>(steps.last - steps.first + 1);
    // Sums that were added in another order may round below 0.
    sum.productive_seconds =
        std::max(sum.productive_seconds - share * steps.computing_seconds, 0.0);
    sum.replayed_seconds += share * steps.computing_seconds;
    steps.end_seconds -= share * steps.seconds;
    starts[steps.start].replayed_from_seconds = steps.end_seconds;
    steps.computing_seconds -= share * steps.computing_seconds;
    steps.seconds -= share * steps.seconds;
    steps.last = step;
    if (whole) counted_.pop_back();
  }

  void steps(const LedgerLine& line, double since) {
    const double seconds = line.step_seconds + line.checkpoint_seconds + line.evaluation_seconds;
    pass(std::max(since, seconds), seconds);
    StartTimes& start = starts.back();
    if (!std::exchange(stepping_, true)) first_step(start.end_seconds - seconds);
    step_end_ = start.end_seconds;
    start.last_step = line.last;
    const double computing = line.step_seconds - line.data_seconds;
    sum.productive_seconds += computing;
    sum.data_seconds += line.data_seconds;
    sum.checkpoint_seconds += line.checkpoint_seconds;
    sum.evaluation_seconds += line.evaluation_seconds;
    counted_.push_back({.start = starts.size() - 1,
                        .first = line.first,
                        .last = line.last,
                        .end_seconds = start.end_seconds,
                        .computing_seconds = computing,
                        .seconds = seconds});
  }

  void end(const LedgerLine& line, double since) {
    pass(since, 0);
    if (!stepping_) first_step(starts.back().end_seconds);
    starts.back().exit_code = line.exit_code;
    starts.back().why = line.why;
  }

  // `seconds` pass, of which the steps account for `known_seconds`.
  void pass(double seconds, double known_seconds) {
    (stepping_ ? sum.idle_seconds : sum.restart_seconds) += seconds - known_seconds;
    starts.back().end_seconds += seconds;
    starts.back().replayed_from_seconds = starts.back().end_seconds;
  }

  std::vector<Counted> counted_;
  bool stepping_ = false;
  StartSeconds starting_;  // of the newest start
  double step_end_ = 0;    // end of the last step; the phases cover the time until here
  double last_seconds_ = 0;
};

Account account_of(std::span<const LedgerLine> lines) {
  Account account;
  for (const auto& line : lines)
    account.add(line);
  return account;
}

// Size up to the last complete line. A crash may leave a partial line after it.
// Replaces the file by a copy of its complete lines, and returns its path.
const std::filesystem::path& renewed(const std::filesystem::path& path) {
  if (path_exists(path))
    renew_file(path, static_cast<std::int64_t>(read_text(path, kMostLedgerBytes).rfind('\n') + 1));
  return path;
}

}  // namespace

std::string to_json_line(const LedgerLine& line) {
  Json json;
  const auto begin = [&](const char* event) {
    json.set("event", event);
    json.set("time_seconds", line.time_seconds);
  };
  switch (line.kind) {
    case Kind::start: {
      begin("start");
      json.set("step", line.step);
      json.set("ranks", line.ranks);
      Json hosts(Json::Array{});
      for (const auto& host : line.hosts)
        hosts.push(host);
      json.set("hosts", std::move(hosts));
      if (!line.version.empty()) json.set("version", line.version);
      if (line.restart != RestartSeconds()) json.set("restart", to_json(line.restart));
      if (line.starting != StartSeconds()) {
        json.set("meet_seconds", line.starting.meet);
        json.set("load_seconds", line.starting.load);
      }
      break;
    }
    case Kind::steps:
      begin("steps");
      json.set("first", line.first);
      json.set("last", line.last);
      json.set("step_seconds", line.step_seconds);
      json.set("data_seconds", line.data_seconds);
      json.set("checkpoint_seconds", line.checkpoint_seconds);
      json.set("evaluation_seconds", line.evaluation_seconds);
      break;
    case Kind::end:
      begin("end");
      json.set("step", line.step);
      json.set("exit_code", line.exit_code);
      json.set("why", line.why);
      break;
  }
  return json.dump() + "\n";
}

std::vector<LedgerLine> read_ledger(const std::filesystem::path& path) {
  if (!path_exists(path)) return {};
  std::string text = read_text(path, kMostLedgerBytes);
  text.resize(text.rfind('\n') + 1);
  std::vector<LedgerLine> lines;
  for_each_json_line(text, path.string(), [&](const Json& json, std::int64_t) {
    auto line = line_of(json);
    if (!line) return;
    if (lines.empty() && line->kind != Kind::start)
      throw DataError("expected a start before this event");
    lines.push_back(std::move(*line));
  });
  return lines;
}

std::optional<LedgerLine> read_last_line(const std::filesystem::path& path) {
  const auto text = last_line(path, kMostLastBytes);
  if (!text) return std::nullopt;
  return in_context([&] { return line_of(Json::parse(*text, "last line")); }, path.string());
}

std::array<std::pair<const char*, double>, 7> Goodput::parts() const {
  return {{{"productive", productive_seconds},
           {"replayed", replayed_seconds},
           {"restart", restart_seconds},
           {"checkpoint", checkpoint_seconds},
           {"data", data_seconds},
           {"evaluation", evaluation_seconds},
           {"idle", idle_seconds}}};
}

double Goodput::wall_seconds() const {
  double sum = 0;
  for (const auto& part : parts())
    sum += part.second;
  return sum;
}

double Goodput::ratio() const {
  const double wall = wall_seconds();
  return wall > 0 ? productive_seconds / wall : 0;
}

Goodput goodput_of(std::span<const LedgerLine> lines) {
  return account_of(lines).sum;
}

std::vector<StartTimes> starts_of(std::span<const LedgerLine> lines) {
  return account_of(lines).starts;
}

std::string in_words(const Goodput& g) {
  return str("goodput ", std::round(1000 * g.ratio()) / 10, "% of ", human_eta(g.wall_seconds()),
             ": productive ", human_eta(g.productive_seconds), ", replayed ",
             human_eta(g.replayed_seconds), ", restarts ", human_eta(g.restart_seconds), " (",
             g.restarts, "), checkpoints ", human_eta(g.checkpoint_seconds), ", data ",
             human_eta(g.data_seconds), ", evaluation ", human_eta(g.evaluation_seconds), ", idle ",
             human_eta(g.idle_seconds));
}

Ledger::Ledger(const std::filesystem::path& path, const Start& start)
    : file_(renewed(path), AppendOnlyFile::Mode::keep),
      began_(start.began),
      accounted_(Clock::now()),
      written_(accounted_),
      last_step_(start.step) {
  const std::chrono::duration<double> starting = accounted_ - began_;
  start_seconds_ = seconds_since_1970() - starting.count();
  auto lines = read_ledger(path);
  const LedgerLine& line = lines.emplace_back(LedgerLine{.kind = Kind::start,
                                                         .time_seconds = start_seconds_,
                                                         .step = start.step,
                                                         .ranks = start.ranks,
                                                         .hosts = start.hosts,
                                                         .version = start.version,
                                                         .restart = start.restart,
                                                         .starting = start.starting});
  file_.append(to_json_line(line));
  const auto account = account_of(lines);
  goodput_ = account.sum;
  if (account.is_clock_wrong)
    log_warning(
        path.string(),
        ": two consecutive lines are more than a year apart, so a clock was wrong; this gap "
        "counts as 0 s");
  goodput_.restart_seconds += starting.count();
  if (goodput_.restarts == 0) return;
  goodput_.phases.add_start(starting.count(), start.starting);
  phases_ = account.starts.back().phases;
  phases_.add_start(starting.count(), start.starting);
}

double Ledger::time_of(Clock::time_point at) const {
  return start_seconds_ + std::chrono::duration<double>(at - began_).count();
}

bool Ledger::append(const StepReport& report) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - accounted_).count();
  accounted_ = now;
  stepping_ = true;
  const double evaluation = std::min(known(report.evaluation_seconds), seconds);
  const double checkpoint =
      std::min(known(report.time[Component::checkpoint]), seconds - evaluation);
  const double step = seconds - evaluation - checkpoint;
  const double data = std::min(known(report.data_wait_seconds), step);
  goodput_.productive_seconds += step - data;
  goodput_.data_seconds += data;
  goodput_.checkpoint_seconds += checkpoint;
  goodput_.evaluation_seconds += evaluation;
  if (!pending_) pending_ = LedgerLine{.kind = Kind::steps, .first = report.step};
  pending_->time_seconds = time_of(now);
  pending_->last = last_step_ = report.step;
  pending_->step_seconds += step;
  pending_->data_seconds += data;
  pending_->checkpoint_seconds += checkpoint;
  pending_->evaluation_seconds += evaluation;
  const bool is_due = now - written_ >= kBetweenLines;
  if (is_due) write_pending();
  return is_due;
}

// If the write fails, the steps stay pending for a later line.
void Ledger::write_pending() {
  written_ = accounted_;
  file_.append(to_json_line(*pending_));
  pending_.reset();
}

void Ledger::end(int exit_code, const std::string& why, double checkpoint_seconds) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - accounted_).count();
  const double saving = std::min(checkpoint_seconds, seconds);
  if (saving > 0 && !pending_)
    pending_ = LedgerLine{.kind = Kind::steps, .first = last_step_ + 1, .last = last_step_};
  if (pending_) {
    pending_->time_seconds = time_of(accounted_) + saving;
    pending_->checkpoint_seconds += saving;
    goodput_.checkpoint_seconds += saving;
    write_pending();
  }
  (stepping_ ? goodput_.idle_seconds : goodput_.restart_seconds) += seconds - saving;
  if (!stepping_ && goodput_.restarts > 0) goodput_.phases.add_start(seconds - saving, {});
  accounted_ = now;
  file_.append(to_json_line({.kind = Kind::end,
                             .time_seconds = time_of(now),
                             .step = last_step_,
                             .exit_code = exit_code,
                             .why = why.substr(0, kMostWhyBytes)}));
}

}  // namespace lockstep
