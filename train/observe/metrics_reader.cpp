#include "train/observe/metrics_reader.h"

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/file.h"
#include "core/json_scanner.h"

namespace lockstep {
namespace {

// The name of the products in older lines.
constexpr std::string_view kProductsBefore = "gemm_seconds";

bool is_part_of_step(int metric) {
  return metric >= static_cast<int>(Metric::communication);
}

// The metric with the member name `key`; -1: none. `hint`: the likely metric.
int metric_of(std::string_view key, int hint) {
  if (key == kProductsBefore) return static_cast<int>(part(Component::products));
  constexpr std::string_view kSeconds = "_seconds";
  const bool in_seconds = key.ends_with(kSeconds);
  const auto stem = in_seconds ? key.substr(0, key.size() - kSeconds.size()) : key;
  for (int i = 0; i < kMetrics; ++i) {
    const int metric = (hint + i) % kMetrics;
    const std::string_view called = name(static_cast<Metric>(metric));
    if (is_part_of_step(metric) ? in_seconds && stem == called : key == called) return metric;
  }
  return -1;
}

// Parses one flat JSON object (RFC 8259).
class LineParser {
 public:
  explicit LineParser(std::string_view line) : json_(line) {}

  StepMetrics parse() {
    json_.expect('{', "{");
    json_.skip_space();
    if (json_.next() == '}') json_.fail("the object has no member \"step\"");
    do
      parse_member();
    while (!json_.ends('}', "}"));
    json_.skip_space();
    if (!json_.at_end()) json_.fail("expected the end of the line after the object");
    if (metrics_.step == 0) json_.fail("the object has no member \"step\"");
    return metrics_;
  }

 private:
  void parse_member() {
    json_.skip_space();
    if (json_.next() != '"') json_.fail("expected a string");
    const auto key = json_.skip_string();
    json_.expect(':', ":");
    json_.skip_space();
    if (key == "step") return parse_step();
    const int metric = metric_of(key, hint_);
    if (metric < 0) return skip_value();
    if (seen_[static_cast<std::size_t>(metric)]) json_.fail(str("\"", key, "\" appears twice"));
    seen_.set(static_cast<std::size_t>(metric));
    hint_ = metric + 1;
    auto& value = metrics_.values[static_cast<std::size_t>(metric)];
    if (json_.take("null")) return;
    if (static_cast<Metric>(metric) == Metric::skipped) {
      value = json_.take("true");
      if (value == 0 && !json_.take("false")) json_.fail("\"skipped\" is neither true nor false");
      return;
    }
    if (!at_number()) json_.fail(str("\"", key, "\" is not a number"));
    value = parse_number();
  }

  void parse_step() {
    if (metrics_.step != 0) json_.fail("\"step\" appears twice");
    if (!json_.at_digit()) json_.fail("\"step\" is not a number of at least 1");
    const auto first = json_.byte();
    parse_number();
    const auto text = json_.since(first);
    const auto read = std::from_chars(text.begin(), text.end(), metrics_.step);
    constexpr std::int64_t kMost = 1'000'000'000'000;
    if (read.ec != std::errc() || read.ptr != text.end() || metrics_.step < 1 ||
        metrics_.step > kMost)
      json_.fail("\"step\" is not a whole number of at least 1");
  }

  void skip_value() {
    if (json_.at_end()) json_.fail("the line ends where a value is expected");
    if (json_.next() == '"')
      json_.skip_string();
    else if (at_number())
      parse_number();
    else if (!json_.take_word())
      json_.fail("expected a number, a string, true, false or null");
  }

  bool at_number() const { return json_.next() == '-' || json_.at_digit(); }

  double parse_number() {
    const auto text = json_.number();
    double value = 0;
    if (std::from_chars(text.begin(), text.end(), value).ec != std::errc())
      json_.fail("the number does not fit in a double");
    return value;
  }

  JsonScanner json_;
  StepMetrics metrics_;
  std::bitset<kMetrics> seen_;
  int hint_ = 0;
};

}  // namespace

const char* name(Metric metric) {
  static constexpr std::array kNames{
#define LOCKSTEP_NAME(member, value, tag, gauge, help) #member,
      LOCKSTEP_STEP_METRICS(LOCKSTEP_NAME)
#undef LOCKSTEP_NAME
          "validation_loss",
      "time_seconds", "communication"};
  const auto index = static_cast<std::size_t>(metric);
  return index < kNames.size() ? kNames[index]
                               : name(static_cast<Component>(index - kNames.size()));
}

StepMetrics parse_metrics_line(std::string_view line) {
  try {
    return LineParser(line).parse();
  } catch (const JsonScanner::Problem& problem) {
    throw DataError(str("at byte ", problem.byte, ": ", problem.what));
  }
}

void MetricsReader::forget() {
  *this = MetricsReader(std::move(path_), most_bytes_);
}

void MetricsReader::leave_out(std::int64_t line, const std::string& why) {
  if (left_out_++ == 0) first_left_out_ = str("line ", line, ": ", why);
}

bool MetricsReader::continues(std::istream& file) const {
  std::string now(before_.size(), '\0');
  file.seekg(offset_ - std::ssize(now));
  file.read(now.data(), std::ssize(now));
  const bool same = file.gcount() == std::ssize(now) && now == before_;
  file.clear();
  return same;
}

void MetricsReader::take_line(std::string_view line, FunctionRef<void(const StepMetrics&)> act) {
  ++lines_;
  if (std::exchange(in_long_line_, false) || std::ssize(line) > kMostLineBytes)
    return leave_out(lines_, str("longer than ", kMostLineBytes, " bytes"));
  StepMetrics metrics;
  try {
    metrics = parse_metrics_line(line);
    if (metrics.step <= step_) throw DataError(str("step ", metrics.step, " follows step ", step_));
    if (const auto last = held_back_ ? held_back_->step : step_;
        last > 0 && metrics.step > last + kMostHole)
      throw DataError(str("step ", metrics.step, " is too far after step ", last));
  } catch (const DataError& error) {  // a reader can do without one line
    return leave_out(lines_, error.what());
  }
  if (held_back_ && metrics.step > held_back_->step)
    accept(*held_back_, held_back_line_, act);
  else if (held_back_)
    leave_out(held_back_line_, str("step ", held_back_->step, " precedes step ", metrics.step));
  held_back_.reset();
  if (is_jump(metrics.step, lines_)) {
    held_back_ = metrics;
    held_back_line_ = lines_;
  } else {
    accept(metrics, lines_, act);
  }
}

std::string MetricsReader::why_held_back() const {
  return str("step ", held_back_->step,
             step_ == 0 ? std::string(" is the first") : str(" is far after step ", step_),
             ", and no line continues from it");
}

// Whether the gap to the last step is larger than the lines between them explain.
bool MetricsReader::is_jump(std::int64_t step, std::int64_t line) const {
  return step - step_ > stride_ * (line - line_);
}

// One gap does not change the expected stride; two successive jumps do.
void MetricsReader::accept(const StepMetrics& metrics, std::int64_t line,
                           FunctionRef<void(const StepMetrics&)> act) {
  const bool jumps = is_jump(metrics.step, line);
  if (line == line_ + 1 && (!jumps || is_behind_jump_)) stride_ = metrics.step - step_;
  is_behind_jump_ = jumps;
  step_ = metrics.step;
  line_ = line;
  act(metrics);
}

// Takes whole lines from the bytes after offset_, and drops a line that is too long.
void MetricsReader::take(std::string_view bytes, FunctionRef<void(const StepMetrics&)> act) {
  constexpr std::size_t kRemembered = 256;
  std::size_t taken = 0;
  for (std::size_t end = 0; (end = bytes.find('\n', taken)) != bytes.npos; taken = end + 1)
    take_line(bytes.substr(taken, end - taken), act);
  if (std::ssize(bytes) - static_cast<std::int64_t>(taken) > kMostLineBytes) {
    in_long_line_ = true;
    taken = bytes.size();
  }
  if (taken == 0) return;
  before_.append(bytes.substr(taken - std::min(taken, kRemembered), std::min(taken, kRemembered)));
  before_.erase(0, before_.size() - std::min(before_.size(), kRemembered));
  offset_ += static_cast<std::int64_t>(taken);
}

bool MetricsReader::poll(FunctionRef<void()> begin_anew,
                         FunctionRef<void(const StepMetrics&)> act) {
  const auto anew = [&] {
    const bool had = lines_ > 0 || offset_ > 0;
    forget();
    if (had) begin_anew();
  };
  if (!path_exists(path_)) {
    anew();
    return false;
  }
  if (std::error_code unknown; !std::filesystem::is_regular_file(path_, unknown))
    throw DataError(str(path_.string(), ": is not a regular file"));
  errno = 0;
  std::ifstream file(path_, std::ios::binary);
  if (!file) fail_io(path_, "cannot open", errno);
  if (!continues(file)) anew();
  file.seekg(0, std::ios::end);
  const std::int64_t size = file.tellg();
  file.seekg(offset_);
  constexpr std::int64_t kChunk = 1 << 20;
  std::string bytes;  // from offset_ on
  share_read_ = 1;
  for (std::int64_t read = 0;; read += kChunk) {
    if (const auto at = offset_ + std::ssize(bytes); read >= most_bytes_ && at < size) {
      share_read_ = static_cast<double>(at) / static_cast<double>(size);
      break;
    }
    const auto had = bytes.size();
    bytes.resize(had + kChunk);
    file.read(bytes.data() + had, kChunk);
    bytes.resize(had + static_cast<std::size_t>(file.gcount()));
    if (bytes.size() == had) break;
    const auto before = offset_;
    take(bytes, act);
    bytes.erase(0, static_cast<std::size_t>(offset_ - before));
  }
  if (file.bad()) throw StorageError(str(path_.string(), ": at byte ", offset_, ": cannot read"));
  unfinished_bytes_ = std::ssize(bytes);
  return true;
}

}  // namespace lockstep
