#include "launch/report/page.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "core/json.h"
#include "launch/report/page_html.h"
#include "launch/report/step_parts.h"

namespace lockstep {
namespace {

// Rounds to six digits: more are not visible, and take three times the bytes.
Json rounded(double value) {
  if (!std::isfinite(value)) return {};
  char text[32];
  const auto* end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, 5).ptr;
  std::from_chars(text, end, value);
  constexpr double kWhole = 1e15;
  if (value == std::trunc(value) && std::abs(value) < kWhole)
    return static_cast<std::int64_t>(value);
  return value;
}

void set_known(Json& object, const char* key, double value) {
  if (std::isfinite(value)) object.set(key, rounded(value));
}

template <class Value>
Json column(const std::vector<Bucket>& buckets, Value&& value) {
  Json::Array values;
  for (const Bucket& bucket : buckets)
    values.push_back(value(bucket));
  return values;
}

// Writes a curve: the mean of each bucket, and if buckets have several lines minimum and maximum.
void set_curve(Json& points, const Buckets& buckets, Metric metric) {
  const auto& all = buckets.all();
  const std::string key = name(metric);
  points.set(key, column(all, [&](const Bucket& b) { return rounded(b[metric].mean()); }));
  if (buckets.lines_each() == 1) return;
  points.set(key + "_low", column(all, [&](const Bucket& b) { return rounded(b[metric].low); }));
  points.set(key + "_high", column(all, [&](const Bucket& b) { return rounded(b[metric].high); }));
}

Json points_of(const Buckets& buckets, const std::vector<Metric>& metrics, double begin_seconds) {
  Json points;
  points.set("lines_each", buckets.lines_each());
  points.set("step", column(buckets.all(), [](const Bucket& bucket) {
               return Json((bucket.first_step + bucket.last_step) / 2);
             }));
  points.set("tokens", column(buckets.all(), [](const Bucket& bucket) {
               return rounded(bucket[Metric::tokens_seen].mean());
             }));
  points.set("seconds", column(buckets.all(), [&](const Bucket& bucket) {
               return rounded(bucket[Metric::time_seconds].mean() - begin_seconds);
             }));
  for (const Metric metric : metrics)
    set_curve(points, buckets, metric);
  return points;
}

Json json_of(const PlanFile& plan) {
  Json json, memory{Json::Array{}};
  for (const auto& [part, bytes] : plan.memory)
    memory.push(Json::Object{{"name", part}, {"bytes", bytes}});
  const auto step = plan.step.without_checkpoints();
  json.set("step_seconds", rounded(step.seconds));
  json.set("tokens_per_second", rounded(step.tokens_per_second));
  set_known(json, "mfu", step.mfu);
  if (plan.band.is_known())
    json.set("band", Json::Array{rounded(plan.band.low), rounded(plan.band.high)});
  if (plan.corrected)
    json.set("corrected_step_seconds", rounded(plan.corrected->without_checkpoints().seconds));
  json.set("memory", std::move(memory));
  json.set("capacity_bytes", plan.capacity_bytes);
  json.set("cluster", plan.cluster);
  return json;
}

Json texts_of(const std::vector<std::string>& texts) {
  Json all{Json::Array{}};
  for (const auto& text : texts)
    all.push(text);
  return all;
}

std::vector<std::string> first_hosts(const StartTimes& start) {
  constexpr std::size_t kMost = 8;
  auto hosts = start.hosts;
  hosts.resize(std::min(hosts.size(), kMost));
  return hosts;
}

// Phases that took no time, or were not measured, are left out.
Json json_of(const RestartPhases& phases) {
  Json json{Json::Object{}};
  for (const auto& [phase, seconds] : phases.parts())
    if (seconds > 0) json.set(phase, rounded(seconds));
  return json;
}

Json json_of(const StartTimes& start) {
  Json json;
  json.set("begin", start.begin_seconds);
  json.set("first_step", start.first_step_seconds);
  json.set("replayed_from", start.replayed_from_seconds);
  json.set("end", start.end_seconds);
  json.set("from_step", start.from_step);
  json.set("last_step", start.last_step);
  json.set("ranks", start.ranks);
  json.set("hosts", texts_of(first_hosts(start)));
  json.set("host_count", std::ssize(start.hosts));
  if (start.exit_code) json.set("exit_code", *start.exit_code);
  json.set("why", start.why);
  json.set("replays_seconds", rounded(start.replays_seconds));
  json.set("phases", json_of(start.phases));
  return json;
}

Json json_of(const Goodput& goodput, const std::vector<StartTimes>& starts) {
  Json json, seconds, each{Json::Array{}};
  for (const auto& [part, of_it] : goodput.parts())
    seconds.set(part, rounded(of_it));
  for (const auto& start : starts)
    each.push(json_of(start));
  json.set("wall_seconds", rounded(goodput.wall_seconds()));
  json.set("seconds", std::move(seconds));
  json.set("phases", json_of(goodput.phases));
  json.set("starts", std::move(each));
  return json;
}

// The typical value: the median, or for metrics that few steps have, the mean of all steps.
double typical(const RunRecord& run, Metric metric) {
  return Medians::has(metric) ? run.medians[metric] : run.steps.mean(metric);
}

Json json_of(const StepPart& part) {
  Json json;
  json.set("name", part.name);
  set_known(json, "planned", part.planned);
  set_known(json, "corrected", part.corrected);
  set_known(json, "measured", part.measured);
  return json;
}

void set_times_of_step(Json& json, const RunRecord& run) {
  const auto times = times_of_step(run.plan ? &*run.plan : nullptr,
                                   [&](Metric metric) { return typical(run, metric); });
  Json parts{Json::Array{}};
  for (const StepPart& part : times.parts)
    parts.push(json_of(part));
  json.set("parts", std::move(parts));
  if (times.checkpoints) json.set("checkpoints", json_of(*times.checkpoints));
}

// Single numbers of a run.
Json figures_of(const RunRecord& run) {
  Json figures;
  figures.set("first_step", run.first.step);
  figures.set("last_step", run.last.step);
  if (const auto steps = planned_steps(run.configuration)) figures.set("planned_steps", *steps);
  figures.set("lines", run.lines);
  figures.set("skipped", run.skipped);
  for (const Metric metric : {Metric::loss, Metric::tokens_seen, Metric::eta_seconds})
    set_known(figures, name(metric), run.last[metric]);
  if (run.last_finite && run.last_finite->step != run.last.step) {
    figures.set("finite_loss", rounded((*run.last_finite)[Metric::loss]));
    figures.set("finite_step", run.last_finite->step);
  }
  for (const Metric metric :
       {Metric::step_seconds, Metric::tokens_per_second, Metric::mfu, Metric::mfu_square})
    set_known(figures, name(metric), typical(run, metric));
  if (std::isfinite(run.first[Metric::time_seconds]))
    figures.set("begin_seconds", run.first[Metric::time_seconds]);
  if (std::isfinite(run.last[Metric::time_seconds]))
    figures.set("end_seconds", run.last[Metric::time_seconds]);
  if (run.best) {
    figures.set("best_validation_loss", rounded((*run.best)[Metric::validation_loss]));
    figures.set("best_step", run.best->step);
    figures.set("last_validation_loss",
                rounded(run.evaluations.all().back()[Metric::validation_loss].last));
  }
  double peak = StepMetrics::kUnknown;
  for (const Bucket& bucket : run.steps.all())
    if (bucket[Metric::peak_bytes].count > 0)
      peak = std::fmax(peak, bucket[Metric::peak_bytes].high);
  set_known(figures, "peak_bytes", peak);
  return figures;
}

Json configuration_of(const RunRecord& run) {
  Json all{Json::Array{}};
  for (const auto& [key, value, origin] : run.configuration)
    all.push(Json::Array{key, value, origin});
  return all;
}

Json environment_of(const RunRecord& run) {
  Json all{Json::Array{}};
  for (const auto& [fact, value] : run.environment)
    all.push(Json::Array{fact, value});
  return all;
}

Json branches_of(const RunRecord& run, double begin_seconds) {
  Json all{Json::Array{}};
  for (const Branch& branch : run.branches) {
    Json json;
    json.set("rollback", branch.rollback);
    json.set("first_step", branch.first_step);
    json.set("last_step", branch.last_step);
    json.set("points",
             points_of(branch.steps, {Metric::loss, Metric::learning_rate, Metric::grad_norm},
                       begin_seconds));
    json.set("evaluations",
             points_of(branch.evaluations, {Metric::validation_loss}, begin_seconds));
    all.push(std::move(json));
  }
  return all;
}

Json json_of(const RunRecord& run) {
  const double begin = run.first[Metric::time_seconds];
  Json json;
  json.set("name", run.name);
  json.set("path", run.path.string());
  json.set("figures", figures_of(run));
  json.set("points", points_of(run.steps,
                               {Metric::loss, Metric::learning_rate, Metric::grad_norm,
                                Metric::tokens_per_second, Metric::mfu, Metric::peak_bytes},
                               begin));
  json.set("evaluations", points_of(run.evaluations, {Metric::validation_loss}, begin));
  json.set("branches", branches_of(run, begin));
  set_times_of_step(json, run);
  if (run.plan) json.set("plan", json_of(*run.plan));
  if (run.goodput) json.set("goodput", json_of(*run.goodput, run.starts));
  json.set("configuration", configuration_of(run));
  json.set("environment", environment_of(run));
  json.set("notes", texts_of(run.notes));
  return json;
}

std::string replaced(const std::string& text, std::string_view what, std::string_view by) {
  std::string all;
  std::size_t begin = 0;
  for (std::size_t at = 0; (at = text.find(what, begin)) != text.npos; begin = at + what.size())
    all.append(text, begin, at - begin).append(by);
  return all.append(text, begin);
}

std::string html_escaped(const std::string& text) {
  return replaced(replaced(text, "&", "&amp;"), "<", "&lt;");
}

// Replaces `mark` in `text`, where it occurs once.
void put_in_place(std::string& text, std::string_view mark, std::string_view by) {
  const auto at = text.find(mark);
  LOCKSTEP_CHECK(at != text.npos, "the page has no ", mark);
  text.replace(at, mark.size(), by);
}

}  // namespace

std::size_t points_of_page(std::size_t runs) {
  constexpr std::size_t kMost = 4096, kAll = 4 * kMost;
  std::size_t points = kMost;
  while (points * runs > kAll)
    points /= 2;
  return points;
}

bool is_report_page(std::string_view beginning) {
  return beginning.starts_with("<!doctype html>") &&
         beginning.find(R"(<meta name="generator" content="lockstep report">)") != beginning.npos;
}

std::string report_data(const std::vector<RunRecord>& runs, const std::string& version,
                        double made_seconds, const std::vector<std::string>& notes) {
  Json json, all{Json::Array{}};
  for (const auto& run : runs)
    all.push(json_of(run));
  json.set("format", "lockstep report 1");
  json.set("made_seconds", std::floor(made_seconds));
  json.set("version", version.substr(0, version.find('\n')));
  json.set("notes", texts_of(notes));
  json.set("runs", std::move(all));
  return replaced(json.dump(), "<", "\\u003c");
}

std::string report_page(const std::vector<RunRecord>& runs, const std::string& version,
                        double made_seconds, const std::vector<std::string>& notes) {
  std::string names;
  for (const auto& run : runs)
    names += (names.empty() ? "" : ", ") + run.name;
  std::string page = kReportPage;
  put_in_place(page, "{{data}}", report_data(runs, version, made_seconds, notes));
  put_in_place(page, "{{title}}", html_escaped(names));
  return page;
}

}  // namespace lockstep
