#include "train/run/amendments.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "data/source.h"

namespace lockstep {
namespace {

constexpr const char* kExtend = "extend";
constexpr std::string_view kSave = " save", kRelease = " release";
constexpr std::int64_t kMostSteps = 1'000'000'000;  // of a run, see launch/option_table.cpp

// The sample at which `step` begins, in a run that is at `now` and sample `sample`.
std::int64_t sample_before(std::int64_t step, std::int64_t now, std::int64_t sample,
                           std::int64_t step_samples) {
  return sample + (step - 1 - now) * step_samples;
}

}  // namespace

Json to_json(const Amendments& amendments) {
  Json all = Json::Array{};
  for (const auto& amendment : amendments) {
    Json json;
    json.set("at_step", amendment.at_step);
    json.set("request", amendment.request);
    if (amendment.last_skipped > 0) {
      json.set("first_skipped", amendment.first_skipped);
      json.set("last_skipped", amendment.last_skipped);
    }
    if (!amendment.settings.empty()) {
      Json::Array settings(amendment.settings.begin(), amendment.settings.end());
      json.set("settings", std::move(settings));
    }
    if (amendment.request == kExtend) {
      json.set("rate", amendment.rate);
      json.set("peak", amendment.peak);
      json.set("steps_before", amendment.steps_before);
    }
    all.push(json);
  }
  return all;
}

Amendments amendments_in(const Json& about) {
  Amendments all;
  const Json* array = about.find("amendments");
  if (array == nullptr) return all;
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (const auto& json : array->as_array()) {
    auto& amendment = all.emplace_back();
    amendment.at_step = integer_at(json, "at_step", 0, kMost);
    amendment.request = text_at(json, "request");
    if (json.find("first_skipped") != nullptr) {
      amendment.first_skipped = integer_at(json, "first_skipped", 1, kMost);
      amendment.last_skipped = integer_at(json, "last_skipped", amendment.first_skipped, kMost);
    }
    if (const Json* settings = json.find("settings"))
      for (const auto& setting : settings->as_array())
        amendment.settings.push_back(setting.as_string());
    if (amendment.request != kExtend) continue;
    amendment.rate = json.at("rate").as_double();
    amendment.peak = json.at("peak").as_double();
    amendment.steps_before = integer_at(json, "steps_before", 1, kMost);
  }
  return all;
}

const Amendment* find(const Amendments& amendments, const std::string& request) {
  const auto found =
      std::ranges::find(amendments.rbegin(), amendments.rend(), request, &Amendment::request);
  return found == amendments.rend() ? nullptr : &*found;
}

std::int64_t request_number(const std::string& request) {
  constexpr std::string_view kRequest = "request ";
  std::int64_t number = 0;
  if (request.starts_with(kRequest))
    std::from_chars(request.data() + kRequest.size(), request.data() + request.size(), number);
  return number;
}

Amendments changes_of(const Amendments& amendments) {
  Amendments changes;
  std::ranges::copy_if(amendments, std::back_inserter(changes),
                       [](const Amendment& one) { return !one.settings.empty(); });
  return changes;
}

std::vector<std::int64_t> kept_steps(const Amendments& amendments) {
  std::vector<std::int64_t> steps;
  for (const auto& one : amendments) {
    if (request_number(one.request) == 0) continue;
    if (one.request.ends_with(kSave)) steps.push_back(one.at_step);
    if (one.request.ends_with(kRelease)) std::erase(steps, one.at_step);
  }
  return steps;
}

void forget_saves_after(std::int64_t step, Amendments& amendments) {
  std::erase_if(amendments, [&](const Amendment& one) {
    return request_number(one.request) > 0 && one.request.ends_with(kSave) && one.at_step > step;
  });
}

LearningRate schedule_at(const Config& config, const Amendments& amendments, std::int64_t step) {
  struct Part {
    std::int64_t begin;
    const Config::Schedule* schedule;  // null: as before
    std::optional<double> rate, peak;  // absent: the rate before, and no warmup
    std::int64_t steps_before = 0;     // of an extension: steps of the run in the parts before it
  };
  std::vector<Part> parts;
  for (const auto& phase : config.rate_phases)
    parts.push_back({phase.from_step, &phase.schedule, {}, phase.peak});
  for (const auto& a : amendments)
    if (a.request == kExtend) parts.push_back({a.at_step, nullptr, a.rate, a.peak, a.steps_before});
  std::ranges::stable_sort(parts, {}, &Part::begin);
  const auto steps_from = [&](auto part) {  // of the run, as planned in the part before `part`
    part = std::find_if(part, parts.end(), [](const Part& p) { return p.steps_before > 0; });
    return part == parts.end() ? config.train.steps : part->steps_before;
  };

  LearningRate now(config);
  now.steps = steps_from(parts.begin());
  for (auto part = parts.begin(); part != parts.end() && part->begin < step; ++part) {
    const double rate = part->rate.value_or(now.at(part->begin));
    if (part->schedule != nullptr) now.schedule = *part->schedule;
    now.begin = part->begin;
    now.steps = steps_from(part + 1);
    now.initial = rate;
    now.peak = part->peak.value_or(rate);
    if (now.peak == now.initial) now.schedule.warmup_steps = 0;
  }
  return now;
}

StepRange StepRange::parse(const std::string& text, const char* flag) {
  StepRange range;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.first);
  const bool has_dots = end - first.ptr > 2 && first.ptr[0] == '.' && first.ptr[1] == '.';
  const auto last = has_dots ? std::from_chars(first.ptr + 2, end, range.last) : first;
  if (!has_dots || first.ec != std::errc{} || last.ec != std::errc{} || last.ptr != end ||
      range.first < 1 || range.last < range.first || range.last > kMostSteps)
    throw UsageError(str(flag, " ", text, ": expected FIRST..LAST, such as 1200..1250"));
  return range;
}

std::string Rollback::request() const {
  return str(number > 0 ? str("request ", number, " ") : "", "from_step ", step,
             skip ? str(" skip_steps ", skip->first, "..", skip->last) : "");
}

std::optional<Rollback> Rollback::parse(const std::string& request) {
  std::istringstream words(request);
  Rollback rollback;
  std::string word, from_step, skip_steps, range;
  words >> word >> rollback.number >> from_step >> rollback.step;
  if (!words || word != "request" || from_step != "from_step") return std::nullopt;
  if (words >> skip_steps >> range) rollback.skip = StepRange::parse(range);
  return rollback;
}

Amendment rollback_to(const Rollback& rollback) {
  return {.at_step = rollback.step, .request = rollback.request()};
}

Amendment skip_of(const StepRange& steps) {
  return {.at_step = steps.first - 1,
          .request = str("skip_steps ", steps.first, "..", steps.last),
          .first_skipped = steps.first,
          .last_skipped = steps.last};
}

Amendment extension_at(std::int64_t step, double rate, double peak, std::int64_t steps_before) {
  return {.at_step = step,
          .request = kExtend,
          .rate = rate,
          .peak = peak,
          .steps_before = steps_before};
}

Amendment amendment_of(std::int64_t number, const std::string& command, std::int64_t at_step,
                       std::vector<std::string> settings) {
  return {.at_step = at_step,
          .request = str("request ", number, " ", command),
          .settings = std::move(settings)};
}

std::optional<AmendmentFile> AmendmentFile::read(const std::filesystem::path& path) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 28;
  if (!path_exists(path)) return std::nullopt;
  const Json json = Json::parse(read_text(path, kMostBytes), path.string());
  return AmendmentFile{amendments_in(json), text_at(json, "unfinished")};
}

void AmendmentFile::write(const std::filesystem::path& path) const {
  Json json;
  json.set("amendments", to_json(amendments));
  json.set("unfinished", unfinished);
  write_text(path, json.dump(2) + "\n");
}

Amendments AmendmentFile::with(const Amendments& of_checkpoint, bool only_changes) const {
  auto all = of_checkpoint;
  for (const auto& one : amendments)
    if (one.request != kExtend && !(only_changes && one.settings.empty()) &&
        find(all, one.request) == nullptr)
      all.push_back(one);
  return all;
}

DataHistory with_skips(DataHistory history, const Amendments& amendments, std::int64_t step,
                       std::int64_t sample, std::int64_t step_samples) {
  Amendments skips = amendments;  // a rollback may skip steps before those of an older skip
  std::ranges::stable_sort(skips, {}, &Amendment::first_skipped);
  for (const auto& amendment : skips) {
    if (amendment.first_skipped <= step) continue;
    const auto at = [&](std::int64_t of) { return sample_before(of, step, sample, step_samples); };
    history =
        skipped(std::move(history), at(amendment.first_skipped), at(amendment.last_skipped + 1));
  }
  return history;
}

}  // namespace lockstep
