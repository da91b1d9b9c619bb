#include "train/ledger.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/file.h"
#include "core/json.h"
#include "core/units.h"

namespace lockstep {
namespace {

using Kind = LedgerLine::Kind;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;  // decades, of a line each ten seconds
constexpr double kMostSeconds = 1e12;
constexpr auto kBetweenLines = std::chrono::seconds(10);
constexpr std::size_t kMostWhyBytes = 1000;

double seconds_at(const Json& line, const char* key) {
  const double seconds = line.at(key).as_double();
  if (!(seconds >= 0 && seconds <= kMostSeconds))
    throw DataError(str(key, " is ", seconds, ", expected seconds, from 0 on"));
  return seconds;
}

std::int64_t step_at(const Json& line, const char* key) {
  return integer_at(line, key, 0, std::numeric_limits<std::int64_t>::max() / 2);
}

void read_steps(const Json& json, LedgerLine& line) {
  line.first = step_at(json, "first");
  line.last = step_at(json, "last");
  if (line.last < line.first - 1)
    throw DataError(str("steps ", line.first, " to ", line.last, " are none"));
  line.step_seconds = seconds_at(json, "step_seconds");
  line.data_seconds = seconds_at(json, "data_seconds");
  line.checkpoint_seconds = seconds_at(json, "checkpoint_seconds");
  line.evaluation_seconds = seconds_at(json, "evaluation_seconds");
  if (line.data_seconds > line.step_seconds)
    throw DataError(str("data_seconds is ", line.data_seconds, ", of step_seconds ",
                        line.step_seconds, ", whose part it is"));
}

std::optional<LedgerLine> line_of(const Json& json) {
  LedgerLine line;
  line.time_seconds = seconds_at(json, "time_seconds");
  const std::string& event = text_at(json, "event");
  if (event == "steps") {
    line.kind = Kind::steps;
    read_steps(json, line);
  } else if (event == "start") {
    line.step = step_at(json, "step");
    line.ranks = integer_at(json, "ranks", 1, std::numeric_limits<int>::max());
    for (const Json& host : json.at("hosts").as_array())
      line.hosts.push_back(host.as_string());
  } else if (event == "end") {
    line.kind = Kind::end;
    line.step = step_at(json, "step");
    line.exit_code = static_cast<int>(integer_at(json, "exit_code", 0, 255));
    line.why = text_at(json, "why");
  } else {
    return std::nullopt;
  }
  return line;
}

double data_wait(const StepReport& report) {
  return std::isfinite(report.data_wait_seconds) ? report.data_wait_seconds : 0;
}

double seconds_of(const StepReport& report, Phase phase) {
  const double seconds = report.phase_seconds[static_cast<std::size_t>(phase)];
  return std::isfinite(seconds) ? seconds : 0;
}

// How much of a line's steps a start behind `step` computes again: the lines say no more of each.
double replayed_share(const LedgerLine& line, std::int64_t step) {
  const auto steps = line.last - line.first + 1;
  const auto again = std::clamp<std::int64_t>(line.last - step, 0, steps);
  return steps == 0 ? 0 : static_cast<double>(again) / static_cast<double>(steps);
}

// Adds lines one by one.
class Account {
 public:
  explicit Account(Goodput& sum) : sum_(sum) {}

  void add(const LedgerLine& line) {
    // Back: somebody set the clock.
    const double since = begun_ ? std::max(line.time_seconds - last_seconds_, 0.0) : 0;
    switch (line.kind) {
      case Kind::start: start(line, since); break;
      case Kind::steps: steps(line, since); break;
      case Kind::end: other(since); break;
    }
    begun_ = true;
    last_seconds_ = line.time_seconds;
  }

 private:
  void other(double seconds) { (stepping_ ? sum_.idle_seconds : sum_.restart_seconds) += seconds; }

  void start(const LedgerLine& line, double since) {
    sum_.idle_seconds += since;
    sum_.restarts += begun_ ? 1 : 0;
    stepping_ = false;
    while (!counted_.empty() && counted_.back().last > line.step) {
      LedgerLine& last = counted_.back();
      const double share = replayed_share(last, line.step);
      const double again = (last.step_seconds - last.data_seconds) * share;
      sum_.productive_seconds -= again;
      sum_.replayed_seconds += again;
      if (last.first > line.step) {
        counted_.pop_back();
        continue;
      }
      last.step_seconds -= last.step_seconds * share;
      last.data_seconds -= last.data_seconds * share;
      last.last = line.step;
    }
  }

  void steps(const LedgerLine& line, double since) {
    other(std::max(since - line.step_seconds - line.checkpoint_seconds - line.evaluation_seconds,
                   0.0));
    stepping_ = true;
    sum_.productive_seconds += line.step_seconds - line.data_seconds;
    sum_.data_seconds += line.data_seconds;
    sum_.checkpoint_seconds += line.checkpoint_seconds;
    sum_.evaluation_seconds += line.evaluation_seconds;
    counted_.push_back(line);
  }

  Goodput& sum_;
  std::vector<LedgerLine> counted_;  // steps that are productive so far
  bool begun_ = false, stepping_ = false;
  double last_seconds_ = 0;
};

// Where the last whole line ends: what is behind it, a crash left.
std::int64_t whole_bytes(const std::filesystem::path& path) {
  return static_cast<std::int64_t>(read_text(path, kMostBytes).rfind('\n') + 1);
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
  std::string text = read_text(path, kMostBytes);
  text.resize(text.rfind('\n') + 1);
  std::vector<LedgerLine> lines;
  for_each_json_line(text, path.string(), [&](const Json& json, std::int64_t) {
    if (auto line = line_of(json)) lines.push_back(std::move(*line));
  });
  return lines;
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
  Goodput sum;
  Account account(sum);
  for (const auto& line : lines)
    account.add(line);
  return sum;
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
    : file_(path, AppendFile::Mode::keep),
      began_(start.began),
      accounted_(Clock::now()),
      written_(accounted_),
      last_step_(start.step) {
  file_.truncate(whole_bytes(path));
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  const std::chrono::duration<double> starting = accounted_ - began_;
  start_seconds_ = now.count() - starting.count();
  auto lines = read_ledger(path);
  const LedgerLine& line = lines.emplace_back(LedgerLine{.kind = Kind::start,
                                                         .time_seconds = start_seconds_,
                                                         .step = start.step,
                                                         .ranks = start.ranks,
                                                         .hosts = start.hosts});
  file_.append(to_json_line(line));
  goodput_ = goodput_of(lines);
  goodput_.restart_seconds += starting.count();
}

double Ledger::time_of(Clock::time_point at) const {
  return start_seconds_ + std::chrono::duration<double>(at - began_).count();
}

void Ledger::append(const StepReport& report) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - accounted_).count();
  accounted_ = now;
  stepping_ = true;
  const double evaluation = std::min(seconds_of(report, Phase::evaluation), seconds);
  const double checkpoint = std::min(seconds_of(report, Phase::checkpoint), seconds - evaluation);
  const double step = seconds - evaluation - checkpoint;
  const double data = std::min(data_wait(report), step);
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
  if (now - written_ >= kBetweenLines) write_pending();
}

// Where that fails, the steps stay pending: a later line may tell of them.
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
  accounted_ = now;
  file_.append(to_json_line({.kind = Kind::end,
                             .time_seconds = time_of(now),
                             .step = last_step_,
                             .exit_code = exit_code,
                             .why = why.substr(0, kMostWhyBytes)}));
}

}  // namespace lockstep
