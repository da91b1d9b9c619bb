// The reader accepts a line of metrics.jsonl if core/json accepts it with the same members, and
// gives the same values. Exceptions are invalid UTF-8, escapes, and numbers at the limits of
// doubles. A good line is read, whatever text surrounds it.
#include <cmath>

#include "core/json.h"
#include "tests/fuzz/fuzz.h"
#include "train/observe/metrics_log.h"
#include "train/observe/metrics_reader.h"

namespace lockstep::fuzz::metrics_reader_fuzz {
double value_in(const Json& json, Metric metric) {
  const Json* found = json.find(name(metric));
  if (metric >= Metric::communication) {
    found = json.find(str(name(metric), "_seconds"));
    if (metric == part(Component::products) && json.find("gemm_seconds") != nullptr) {
      if (found != nullptr) throw DataError("twice");
      found = json.find("gemm_seconds");
    }
  }
  if (found == nullptr || found->is_null()) return StepMetrics::kUnknown;
  return metric == Metric::skipped ? found->as_bool() : found->as_double();
}

// The step as core/json reads it.
StepMetrics expected(std::string_view line) {
  const auto json = Json::parse(line, "line", 1);
  StepMetrics metrics;
  metrics.step = json.at("step").as_integer();
  if (metrics.step < 1 || metrics.step > 1'000'000'000'000) throw DataError("step");
  for (int i = 0; i < kMetrics; ++i)
    metrics[static_cast<Metric>(i)] = value_in(json, static_cast<Metric>(i));
  return metrics;
}

bool same(const StepMetrics& a, const StepMetrics& b) {
  for (std::size_t i = 0; i < kMetrics; ++i)
    if (!(a.values[i] == b.values[i] || (std::isnan(a.values[i]) && std::isnan(b.values[i]))))
      return false;
  return a.step == b.step;
}

// Returns nothing, with the reason, if the line is rejected.
template <class Read>
std::vector<StepMetrics> read_by(Read&& read, std::string_view line, std::string& why) {
  try {
    return {read(line)};
  } catch (const DataError& error) {
    why = error.what();
    return {};
  }
}

void check_line(std::string_view line) {
  for (const char c : line)
    if (c == '\\' || (c & 0x80) != 0) return;
  std::string why_here, why_there;
  const auto here = read_by(parse_metrics_line, line, why_here);
  const auto there = read_by(expected, line, why_there);
  if (!here.empty() && !there.empty()) LOCKSTEP_CHECK(same(here[0], there[0]), "other values");
  const bool of_core = why_there.find("twice") != std::string::npos ||
                       why_there.find("overflow") != std::string::npos;
  if (!here.empty() && there.empty()) LOCKSTEP_CHECK(of_core, "takes what is not: ", why_there);
  if (here.empty() && !there.empty())
    LOCKSTEP_CHECK(why_here.find("fit in a double") != std::string::npos, "refuses: ", why_here);
}

// Checks a file that has the text between two good lines.
void check_file(std::string_view text) {
  static const MemoryFile file;
  StepReport first, last, behind;
  first.step = 1;
  last.step = 1000;
  behind.step = 1001;  // without this step, the reader would reject the jump to the last one
  const auto all =
      str(to_json_line(first, 1), text, "\n", to_json_line(last, 2), to_json_line(behind, 3));
  file.set(all);
  MetricsReader reader(file.path());
  std::int64_t step = 0, lines = 0;
  const auto act = [&](const StepMetrics& line) {
    LOCKSTEP_CHECK(line.step > step, "step ", line.step, " behind ", step);
    step = line.step;
    ++lines;
  };
  reader.poll([] { LOCKSTEP_FAIL("anew"); }, act);
  LOCKSTEP_CHECK(
      lines >= 1 && lines + reader.left_out() + (reader.held_back() ? 1 : 0) == reader.lines(),
      "lines are missing");
  LOCKSTEP_CHECK(step >= 1000 || reader.left_out() > 0, "the last line is missing");
}

void check(std::string_view text) {
  check_line(text);
  must_accept([&] { check_file(text); });
}

Seeds seeds() {
  StepReport report;
  report.step = 12;
  report.loss = 3.25;
  report.validation_loss = 3.5;
  report.weight_hash = 77;
  auto line = to_json_line(report, 1.7e9);
  line.pop_back();
  return {line, R"({"step": 3, "products_seconds": 1e-3, "other_seconds": null, "skipped": true})",
          R"({"gemm_seconds":-0.5E+2,"x":"y","step":1,"communication_seconds":2,"z":false})"};
}

const Target target("metrics_reader", seeds, check);

}  // namespace lockstep::fuzz::metrics_reader_fuzz
