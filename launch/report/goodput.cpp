#include "launch/report/goodput.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "core/file.h"
#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostBytes = 1 << 28;
constexpr std::size_t kMostStarts = 10'000;

struct Steps {
  double time_seconds = 0;  // when the last was done
  std::int64_t first = 0, last = 0;
  double step_seconds = 0, data_seconds = 0, checkpoint_seconds = 0, evaluation_seconds = 0;

  double all_seconds() const { return step_seconds + checkpoint_seconds + evaluation_seconds; }
};

double seconds_at(const Json& line, const char* key) {
  const double value = line.at(key).as_double();
  constexpr double kMost = 1e11;  // the year 5138
  if (!(0 <= value && value <= kMost)) throw DataError(str(key, ": ", value, " is no time"));
  return value;
}

// A start and its lines of steps; what they mean is known when the next start says where it began.
class Lines {
 public:
  explicit Lines(RunTimes& all) : all_(all) {}

  void take(const Json& line) {
    const auto& event = text_at(line, "event");
    const double time = seconds_at(line, "time_seconds");
    if (event == "start") return begin(line, time);
    if (all_.starts.empty()) throw DataError("no start is in front of it");
    if (time < all_.starts.back().end_seconds) throw DataError("its time is before the last one's");
    if (event == "steps") {
      take_steps(line, time);
    } else if (event == "end") {
      all_.starts.back().exit_code = line.at("exit_code").as_integer();
      if (line.find("why") != nullptr) all_.starts.back().why = text_at(line, "why");
    }
    all_.starts.back().end_seconds = time;
  }

  // `next_step`: the step behind which the next start went on.
  void close(std::int64_t next_step) {
    if (all_.starts.empty()) return;
    auto& start = all_.starts.back();
    start.first_step_seconds = start.end_seconds;
    start.replayed_from_seconds = start.end_seconds;
    if (!steps_.empty())
      start.first_step_seconds =
          std::clamp(steps_.front().time_seconds - steps_.front().all_seconds(),
                     start.begin_seconds, start.end_seconds);
    for (auto steps = steps_.rbegin(); steps != steps_.rend() && steps->last > next_step; ++steps)
      start.replayed_from_seconds =
          std::clamp(steps->time_seconds - replayed_share(*steps, next_step) * steps->all_seconds(),
                     start.first_step_seconds, start.replayed_from_seconds);
    count(start, next_step);
    steps_.clear();
  }

 private:
  static constexpr std::int64_t kMostStep = 1'000'000'000'000;

  static double replayed_share(const Steps& steps, std::int64_t next_step) {
    if (steps.last < steps.first) return 0;
    return static_cast<double>(steps.last - std::max(next_step, steps.first - 1)) /
           static_cast<double>(steps.last - steps.first + 1);
  }

  void begin(const Json& line, double time) {
    if (!all_.starts.empty() && time < all_.starts.back().end_seconds)
      throw DataError("its time is before the last one's");
    if (all_.starts.size() == kMostStarts)
      throw DataError(str("more than ", kMostStarts, " starts"));
    const auto step = integer_at(line, "step", 0, kMostStep);
    RunTimes::Start start{.begin_seconds = time,
                          .end_seconds = time,
                          .from_step = step,
                          .last_step = step,
                          .hosts = {},
                          .exit_code = {},
                          .why = {}};
    if (line.find("ranks") != nullptr) start.ranks = integer_at(line, "ranks", 1, kMostStep);
    if (const Json* hosts = line.find("hosts"))
      for (const Json& host : hosts->as_array())
        start.hosts.push_back(host.as_string());
    close(step);
    if (!all_.starts.empty()) add(RunTimes::Kind::idle, time - all_.starts.back().end_seconds);
    all_.starts.push_back(std::move(start));
  }

  void take_steps(const Json& line, double time) {
    Steps steps{.time_seconds = time};
    steps.first = integer_at(line, "first", 1, kMostStep);
    steps.last = integer_at(line, "last", steps.first - 1, kMostStep);  // none: a save behind them
    steps.step_seconds = seconds_at(line, "step_seconds");
    const auto read = [&](const char* key, double& value) {
      if (line.find(key) != nullptr) value = seconds_at(line, key);
    };
    read("data_seconds", steps.data_seconds);
    read("checkpoint_seconds", steps.checkpoint_seconds);
    read("evaluation_seconds", steps.evaluation_seconds);
    steps.data_seconds = std::min(steps.data_seconds, steps.step_seconds);
    all_.starts.back().last_step = steps.last;
    steps_.push_back(steps);
  }

  void add(RunTimes::Kind kind, double seconds) {
    all_.seconds[static_cast<std::size_t>(kind)] += seconds;
  }

  void count(const RunTimes::Start& start, std::int64_t next_step) {
    double rest = start.end_seconds - start.begin_seconds;
    // What clocks disagree about is no time of the run: kinds never sum to more than there was.
    const auto take = [&](RunTimes::Kind kind, double seconds) {
      const double taken = std::min(seconds, rest);
      add(kind, taken);
      rest -= taken;
    };
    for (const Steps& steps : steps_) {
      const double share = steps.last > next_step ? replayed_share(steps, next_step) : 0;
      const double computing = steps.step_seconds - steps.data_seconds;
      take(RunTimes::Kind::productive, (1 - share) * computing);
      take(RunTimes::Kind::replayed, share * computing);
      take(RunTimes::Kind::data, steps.data_seconds);
      take(RunTimes::Kind::checkpoint, steps.checkpoint_seconds);
      take(RunTimes::Kind::evaluation, steps.evaluation_seconds);
    }
    add(RunTimes::Kind::restart, rest);
  }

  RunTimes& all_;
  std::vector<Steps> steps_;
};

}  // namespace

const char* name(RunTimes::Kind kind) {
  constexpr std::array<const char*, RunTimes::kKinds> kNames{
      "productive", "replayed", "data", "checkpoint", "evaluation", "restart", "idle"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<RunTimes> read_run_times(const std::filesystem::path& ledger) {
  if (!path_exists(ledger)) return std::nullopt;
  const auto text = read_text(ledger, kMostBytes);
  RunTimes goodput;
  Lines lines(goodput);
  std::int64_t number = 0;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    ++number;
    try {
      lines.take(Json::parse(std::string_view(text).substr(at, end - at), "ledger"));
    } catch (const DataError& error) {  // who looks at a run can do without a line
      if (goodput.left_out++ == 0)
        goodput.first_left_out = str("line ", number, ": ", error.what());
    }
  }
  lines.close(std::numeric_limits<std::int64_t>::max());
  if (goodput.starts.empty()) return std::nullopt;
  goodput.wall_seconds = goodput.starts.back().end_seconds - goodput.starts.front().begin_seconds;
  return goodput;
}

std::optional<RunEnd> last_end(const std::filesystem::path& ledger) {
  if (!path_exists(ledger)) return std::nullopt;
  constexpr std::streamoff kMostLine = 1 << 16;
  std::ifstream file(ledger, std::ios::binary | std::ios::ate);
  file.seekg(std::max<std::streamoff>(file.tellg() - kMostLine, 0));
  std::string text(kMostLine, '\0');
  file.read(text.data(), kMostLine);
  text.resize(static_cast<std::size_t>(file.gcount()));
  text.resize(text.rfind('\n') + 1);  // npos + 1 is 0
  if (text.empty()) return std::nullopt;
  text.pop_back();
  try {
    const auto line = Json::parse(text.substr(text.rfind('\n') + 1), ledger.string());
    if (text_at(line, "event") != "end") return std::nullopt;
    return RunEnd{.time_seconds = seconds_at(line, "time_seconds"),
                  .exit_code = line.at("exit_code").as_integer(),
                  .why = line.find("why") != nullptr ? text_at(line, "why") : ""};
  } catch (const DataError&) {  // then it is not said
    return std::nullopt;
  }
}

}  // namespace lockstep
