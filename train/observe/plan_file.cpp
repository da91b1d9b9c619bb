#include "train/observe/plan_file.h"

#include <algorithm>
#include <cmath>

#include "core/component.h"
#include "core/file.h"

namespace lockstep {
namespace {

constexpr const char* kFormat = "lockstep plan 1";
constexpr std::int64_t kMostBytes = 1 << 20;
constexpr std::size_t kMostParts = 64;

double amount_at(const Json& object, const char* key) {
  return in_context(
      [&] {
        const double value = object.at(key).as_double();
        if (!(value >= 0 && std::isfinite(value)))
          throw DataError(str("expected at least 0, found ", value));
        return value;
      },
      key);
}

double amount_or_null_at(const Json& object, const char* key) {
  return object.at(key).is_null() ? PlanFile::Step::kUnknown : amount_at(object, key);
}

// Reads a list of objects with different names. take(object) returns the part of one object.
template <class Part, class Take>
std::vector<Part> parts_at(const Json& object, const char* key, Take&& take) {
  return in_context(
      [&] {
        const Json::Array& list = object.at(key).as_array();
        if (list.size() > kMostParts)
          throw DataError(str("expected at most ", kMostParts, ", found ", list.size()));
        std::vector<Part> parts;
        for (const Json& one : list) {
          Part part = take(one);
          if (std::ranges::find(parts, part.name, &Part::name) != parts.end())
            throw DataError(str("the name ", part.name, " occurs twice"));
          parts.push_back(std::move(part));
        }
        return parts;
      },
      key);
}

PlanFile::Step step_in(const Json& json) {
  PlanFile::Step step{.seconds = amount_at(json, "step_seconds"),
                      .tokens_per_second = amount_at(json, "tokens_per_second"),
                      .mfu = amount_or_null_at(json, "mfu"),
                      .mfu_square = amount_or_null_at(json, "mfu_square")};
  step.components = parts_at<PlanFile::Time>(json, "components", [](const Json& one) {
    return PlanFile::Time{text_at(one, "name"), amount_at(one, "seconds")};
  });
  return step;
}

void set_step(Json& json, const PlanFile::Step& step) {
  Json components(Json::Array{});
  for (const auto& [name, seconds] : step.components)
    components.push(Json::Object{{"name", name}, {"seconds", seconds}});
  json.set("step_seconds", step.seconds);
  json.set("tokens_per_second", step.tokens_per_second);
  json.set("mfu", step.mfu);
  json.set("mfu_square", step.mfu_square);
  json.set("components", std::move(components));
}

PlanFile::Band band_in(const Json& json) {
  const PlanFile::Band band{.low = amount_at(json, "low"), .high = amount_at(json, "high")};
  if (!(band.low > 0) || !band.is_known())
    throw DataError(
        str("expected low above 0 and high above low, found ", band.low, " and ", band.high));
  return band;
}

}  // namespace

PlanFile::Step PlanFile::Step::without_checkpoints() const {
  Step steps = *this;
  const auto saves = std::ranges::find(components, name(Component::checkpoint), &Time::name);
  if (saves == components.end() || saves->seconds >= seconds) return steps;
  steps.seconds -= saves->seconds;
  const double faster = seconds / steps.seconds;
  steps.tokens_per_second *= faster;
  steps.mfu *= faster;
  steps.mfu_square *= faster;
  return steps;
}

PlanFile PlanFile::parse(const Json& json) {
  if (const auto& format = text_at(json, "format"); format != kFormat)
    throw DataError(str("format: expected ", kFormat, ", found ", format));
  const auto bytes_at = [](const Json& object, const char* member) {
    return integer_at(object, member, 0, std::numeric_limits<std::int64_t>::max());
  };
  PlanFile plan{.step = step_in(json),
                .capacity_bytes = bytes_at(json, "capacity_bytes"),
                .checkpoint_bytes = bytes_at(json, "checkpoint_bytes"),
                .cluster = text_at(json, "cluster"),
                .key = json.find("key") != nullptr ? text_at(json, "key") : ""};
  plan.memory = parts_at<PlanFile::Memory>(json, "memory", [&](const Json& one) {
    return PlanFile::Memory{text_at(one, "name"), bytes_at(one, "bytes")};
  });
  if (const Json* band = json.find("band"))
    plan.band = in_context([&] { return band_in(*band); }, "band");
  if (const Json* corrected = json.find("corrected"))
    plan.corrected = in_context([&] { return step_in(*corrected); }, "corrected");
  return plan;
}

Json PlanFile::to_json() const {
  Json json, parts(Json::Array{});
  for (const auto& [name, bytes] : memory)
    parts.push(Json::Object{{"name", name}, {"bytes", bytes}});
  json.set("format", kFormat);
  set_step(json, step);
  if (band.is_known()) json.set("band", Json::Object{{"low", band.low}, {"high", band.high}});
  if (corrected) {
    Json members;
    set_step(members, *corrected);
    json.set("corrected", std::move(members));
  }
  json.set("memory", std::move(parts));
  json.set("capacity_bytes", capacity_bytes);
  json.set("checkpoint_bytes", checkpoint_bytes);
  json.set("cluster", cluster);
  if (!key.empty()) json.set("key", key);
  return json;
}

void write_plan_file(const std::filesystem::path& path, const PlanFile& plan) {
  write_text(path, plan.to_json().dump(1) + "\n");
}

std::optional<PlanFile> read_plan_file(const std::filesystem::path& path) {
  if (!path_exists(path)) return std::nullopt;
  const auto json = Json::parse(read_text(path, kMostBytes), path.string());
  return in_context([&] { return PlanFile::parse(json); }, path.string());
}

}  // namespace lockstep
