#include "launch/report/step_parts.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace lockstep {
namespace {

// Parts in the order of tables. Older lines have only the sum of all communication.
std::vector<Metric> parts_of_a_step() {
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < kComponents; ++i) {
    const auto component = static_cast<Component>(i);
    if (component == Component::communication_tensor) metrics.push_back(Metric::communication);
    if (component != Component::checkpoint) metrics.push_back(part(component));
  }
  return metrics;
}

// Waits for data, which are known for all steps. The component is known only for some steps on a
// GPU, but is the only source in older lines.
double waits_for_data(FunctionRef<double(Metric)> measured) {
  const double seconds = measured(Metric::data_wait_seconds);
  return std::isnan(seconds) ? measured(part(Component::data)) : seconds;
}

// The part of a step that no component covers.
double rest_of_step(std::span<const StepPart> parts, FunctionRef<double(Metric)> measured) {
  if (std::isnan(measured(part(Component::products)))) return StepMetrics::kUnknown;
  double rest = measured(Metric::step_seconds);
  for (const StepPart& part : parts)
    if (!std::isnan(part.measured)) rest -= part.measured;
  return std::max(rest, 0.0);
}

double seconds_of(const PlanFile::Step& step, const std::string& called) {
  const auto found = std::ranges::find(step.components, called, &PlanFile::Time::name);
  return found == step.components.end() ? StepMetrics::kUnknown : found->seconds;
}

bool is_nothing(const StepPart& part) {
  const auto none = [](double seconds) { return std::isnan(seconds) || seconds == 0; };
  return none(part.planned) && none(part.measured);
}

// Adds the planned times. A plan names only parts with time.
StepPart beside(const PlanFile* plan, StepPart part) {
  if (plan == nullptr) return part;
  part.planned = seconds_of(plan->step, part.name);
  if (plan->corrected) part.corrected = seconds_of(*plan->corrected, part.name);
  if (std::isnan(part.planned) && !std::isnan(part.measured)) part.planned = 0;
  return part;
}

StepPart whole_step(const PlanFile* plan, FunctionRef<double(Metric)> measured) {
  StepPart whole{.name = "whole step", .measured = measured(Metric::step_seconds)};
  if (plan == nullptr) return whole;
  whole.planned = plan->step.without_checkpoints().seconds;
  if (plan->corrected) whole.corrected = plan->corrected->without_checkpoints().seconds;
  return whole;
}

}  // namespace

StepTimes times_of_step(const PlanFile* plan, FunctionRef<double(Metric)> measured) {
  StepTimes times{.parts = {}, .whole = whole_step(plan, measured), .checkpoints = {}};
  auto& parts = times.parts;
  for (const Metric metric : parts_of_a_step()) {
    const bool is_data = metric == part(Component::data);
    auto& added = parts.emplace_back();
    added.name = name(metric);
    added.measured = is_data ? waits_for_data(measured) : measured(metric);
    if (metric == part(Component::other) && std::isnan(added.measured))
      added.measured = rest_of_step(std::span(parts).first(parts.size() - 1), measured);
  }
  const std::string saves = name(part(Component::checkpoint));
  if (plan != nullptr)
    for (const auto& component : plan->step.components)
      if (component.name != saves &&
          std::ranges::find(parts, component.name, &StepPart::name) == parts.end())
        parts.push_back({.name = component.name});
  for (StepPart& one : parts)
    one = beside(plan, one);
  std::erase_if(parts, is_nothing);
  const auto checkpoints =
      beside(plan, {.name = saves, .measured = measured(part(Component::checkpoint))});
  if (!is_nothing(checkpoints)) times.checkpoints = checkpoints;
  return times;
}

}  // namespace lockstep
