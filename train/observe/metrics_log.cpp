#include "train/observe/metrics_log.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "core/wall_clock.h"
#include "data/source.h"
#include "train/observe/step_metrics.h"
#include "train/step/weight_hash.h"

namespace lockstep {
namespace {

constexpr std::string_view kFirst = "{\"step\":";

class Line {
 public:
  void add(std::string_view key, double value) {
    if (!std::isfinite(value)) return add_text(key, "null");
    char digits[32];
    add_text(key, {digits, std::to_chars(digits, digits + sizeof digits, value).ptr});
  }
  void add(std::string_view key, std::int64_t value) { add_text(key, std::to_string(value)); }
  void add(std::string_view key, const std::string& text) { add_text(key, str('"', text, '"')); }
  void add(std::string_view key, bool value) { add_text(key, value ? "true" : "false"); }
  std::string text() const { return text_ + "}\n"; }

 private:
  void add_text(std::string_view key, std::string_view value) {
    text_ += text_.empty() ? "{\"" : ",\"";
    (text_ += key) += "\":";
    text_ += value;
  }
  std::string text_;
};

std::optional<std::int64_t> step_of(std::string_view line) {
  if (line.substr(0, kFirst.size()) != kFirst) return std::nullopt;
  std::int64_t step = 0;
  const auto* begin = line.data() + kFirst.size();
  const auto read = std::from_chars(begin, line.data() + line.size(), step);
  return read.ec == std::errc{} ? std::optional(step) : std::nullopt;
}

// The complete lines of a file: those up to the first one of a step after `step`, and the rest.
std::pair<std::string, std::string> split_after(const std::filesystem::path& path,
                                                std::int64_t step) {
  std::pair<std::string, std::string> parts;
  bool is_after = false;
  for_each_line(ReadFile(path), [&](std::string_view line) {
    is_after = is_after || step_of(line).value_or(0) > step;
    (is_after ? parts.second : parts.first) += str(line, "\n");
    return true;
  });
  return parts;
}

}  // namespace

std::string to_json_line(const StepReport& r, double time_seconds) {
  Line line;
  line.add("step", r.step);
#define LOCKSTEP_ADD(member, value, tag, gauge, help) line.add(#member, value);
  LOCKSTEP_STEP_METRICS(LOCKSTEP_ADD)
#undef LOCKSTEP_ADD
  for (std::size_t i = 0; i < kComponents; ++i)
    line.add(str(name(static_cast<Component>(i)), "_seconds"), r.time.seconds[i]);
  line.add("time_seconds", time_seconds);
  if (r.gpu) {
    line.add("gpu_clock_mhz", r.gpu->clock_mhz);
    line.add("gpu_power_watts", r.gpu->power_watts);
    line.add("gpu_temperature_celsius", r.gpu->temperature_celsius);
    if (r.gpu->power_capped) {
      line.add("gpu_power_capped", *r.gpu->power_capped);
      line.add("gpu_slowed_by", joined(r.gpu->slowed_by));
    }
    line.add("energy_joules", r.gpu->step_joules);
    line.add("joules_per_token", r.joules_per_token);
  }
  if (r.slowest) {
    line.add("slowest_rank", std::int64_t{r.slowest->rank});
    line.add("slowest_rank_ratio", r.slowest->ratio());
  }
  if (r.shards) {
    line.add("shard_files_fetched", r.shards->fetched);
    line.add("shard_files_from_cache", r.shards->hits);
    line.add("shard_files_waited_for", r.shards->misses);
    line.add("shard_files_removed", r.shards->evicted);
    line.add("shard_fetched_bytes", r.shards->fetched_bytes);
    line.add("shard_fetching_seconds", r.shards->fetching_seconds);
    line.add("shard_waited_seconds", r.shards->waited_seconds);
  }
  if (r.validation_loss) line.add("validation_loss", *r.validation_loss);
  if (r.weight_hash) line.add("weight_hash", hex_of(*r.weight_hash));
  return line.text();
}

bool operator==(const RecordedStep& a, const RecordedStep& b) {
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return a.step == b.step && a.learning_rate == b.learning_rate && same(a.loss, b.loss) &&
         same(a.grad_norm, b.grad_norm) && a.weight_hash == b.weight_hash;
}

std::vector<RecordedStep> recorded_steps(const std::filesystem::path& path, std::int64_t after) {
  std::vector<RecordedStep> steps;
  if (!path_exists(path)) return steps;
  int number = 0;
  for_each_line(ReadFile(path), [&](std::string_view line) {
    ++number;
    if (step_of(line).value_or(after) <= after) return true;
    const Json json = Json::parse(line, str(path.string(), ", line ", number));
    const auto value = [&](const char* key) {
      const Json& found = json.at(key);
      return found.is_null() ? std::numeric_limits<double>::quiet_NaN() : found.as_double();
    };
    RecordedStep& step = steps.emplace_back();
    step.step = json.at("step").as_integer();
    step.learning_rate = value("learning_rate");
    step.loss = value("loss");
    step.grad_norm = value("grad_norm");
    if (const Json* hash = json.find("weight_hash")) step.weight_hash = hash->as_string();
    return true;
  });
  return steps;
}

void abandon_metrics_after(const RunDirectory& run, std::int64_t step) {
  if (!path_exists(run.metrics())) return;
  const auto lines = split_after(run.metrics(), step).second;
  if (lines.empty()) return;
  int k = 1;
  while (path_exists(run.metrics_before(k)))
    ++k;
  const auto newest = run.metrics_before(k - 1);
  const bool was_interrupted = k > 1 && ReadFile(newest).size_bytes() == std::ssize(lines) &&
                               read_text(newest, std::ssize(lines)) == lines;
  if (!was_interrupted) write_text(run.metrics_before(k), lines);
  MetricsLog(run.metrics(), step).sync();
}

void copy_metrics(const std::filesystem::path& from, const std::filesystem::path& to,
                  std::int64_t step) {
  if (path_exists(from)) write_text(to, split_after(from, step).first);
}

// Keeps the lines up to the first one after `resumed_step`, or up to the last complete one.
MetricsLog::Kept MetricsLog::renew(const std::filesystem::path& path, std::int64_t resumed_step) {
  Kept kept;
  if (!path_exists(path)) return kept;
  for_each_line(ReadFile(path), [&](std::string_view line) {
    const auto step = step_of(line).value_or(kept.step);
    if (step > resumed_step) return false;
    if (step > kept.step) ++kept.steps;
    kept.step = step;
    kept.bytes += static_cast<std::int64_t>(line.size()) + 1;
    return true;
  });
  renew_file(path, kept.bytes);
  return kept;
}

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t resumed_step)
    : kept_(renew(path, resumed_step)), file_(path, AppendOnlyFile::Mode::keep) {}

void MetricsLog::append(const StepReport& report) {
  file_.append(to_json_line(report, seconds_since_1970()));
}

}  // namespace lockstep
