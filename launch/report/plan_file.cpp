#include "launch/report/plan_file.h"

#include "core/file.h"
#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostBytes = 1 << 20;
constexpr std::size_t kMostParts = 64;

double amount_at(const Json& object, const char* key) {
  return in_context(
      [&] {
        const double value = object.at(key).as_double();
        if (!(value >= 0)) throw DataError(str("expected at least 0, found ", value));
        return value;
      },
      key);
}

void read_amount(const Json& object, const char* key, double& value) {
  if (const Json* found = object.find(key); found != nullptr && !found->is_null())
    value = amount_at(object, key);
}

std::vector<PlanFile::Part> parts_at(const Json& object, const char* key, const char* unit) {
  std::vector<PlanFile::Part> parts;
  const Json* list = object.find(key);
  if (list == nullptr) return parts;
  if (list->as_array().size() > kMostParts)
    throw DataError(
        str(key, ": expected at most ", kMostParts, ", found ", list->as_array().size()));
  for (const Json& part : list->as_array())
    parts.push_back({text_at(part, "name"), amount_at(part, unit)});
  return parts;
}

PlanFile plan_in(const Json& json) {
  PlanFile plan;
  plan.step_seconds = amount_at(json, "step_seconds");
  read_amount(json, "tokens_per_second", plan.tokens_per_second);
  read_amount(json, "mfu", plan.mfu);
  read_amount(json, "capacity_bytes", plan.capacity_bytes);
  plan.components = parts_at(json, "components", "seconds");
  plan.memory = parts_at(json, "memory", "bytes");
  if (json.find("cluster") != nullptr) plan.cluster = text_at(json, "cluster");
  if (const Json* corrected = json.find("corrected"); corrected && !corrected->is_null()) {
    plan.corrected_step_seconds = amount_at(*corrected, "step_seconds");
    plan.corrected_components = parts_at(*corrected, "components", "seconds");
  }
  return plan;
}

}  // namespace

std::optional<PlanFile> read_plan_file(const std::filesystem::path& path) {
  if (!path_exists(path)) return std::nullopt;
  const auto json = Json::parse(read_text(path, kMostBytes), path.string());
  return in_context([&] { return plan_in(json); }, path.string());
}

}  // namespace lockstep
