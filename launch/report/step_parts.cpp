#include "launch/report/step_parts.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr std::array kParts{Metric::products,
                            Metric::attention,
                            Metric::memory_bound,
                            Metric::communication,
                            Metric::communication_tensor,
                            Metric::communication_shard,
                            Metric::communication_replicate,
                            Metric::communication_ranks,
                            Metric::communication_host,
                            Metric::optimizer,
                            Metric::data,
                            Metric::checkpoint,
                            Metric::other};

// What is in no span of a step; checkpoints are between steps.
double rest_of_step(const std::vector<StepPart>& parts, FunctionRef<double(Metric)> measured) {
  if (std::isnan(measured(Metric::products))) return StepMetrics::kUnknown;
  double rest = measured(Metric::step_seconds);
  for (const StepPart& part : parts)
    if (part.name != name(Metric::checkpoint) && !std::isnan(part.measured)) rest -= part.measured;
  return std::max(rest, 0.0);
}

double seconds_of(const PlanFile::Step& step, const std::string& called) {
  const auto found = std::ranges::find(step.components, called, &PlanFile::Time::name);
  return found == step.components.end() ? StepMetrics::kUnknown : found->seconds;
}

bool is_something(double seconds) {
  return !std::isnan(seconds) && seconds != 0;
}

}  // namespace

std::vector<StepPart> parts_of_step(const PlanFile* plan, FunctionRef<double(Metric)> measured) {
  const auto planned = plan != nullptr ? plan->step : PlanFile::Step();
  const auto corrected =
      plan != nullptr ? plan->corrected.value_or(PlanFile::Step()) : PlanFile::Step();
  std::vector<StepPart> parts;
  for (const Metric metric : kParts) {
    StepPart part{.name = name(metric), .measured = measured(metric)};
    if (metric == Metric::other && std::isnan(part.measured))
      part.measured = rest_of_step(parts, measured);
    parts.push_back(part);
  }
  for (const auto& component : planned.components)
    if (std::ranges::find(parts, component.name, &StepPart::name) == parts.end())
      parts.push_back({.name = component.name});
  for (StepPart& part : parts) {
    part.planned = seconds_of(planned, part.name);
    part.corrected = seconds_of(corrected, part.name);
    // A plan names what is not 0.
    if (plan != nullptr && std::isnan(part.planned) && !std::isnan(part.measured)) part.planned = 0;
  }
  std::erase_if(parts, [](const StepPart& part) {
    return !is_something(part.planned) && !is_something(part.measured);
  });
  return parts;
}

}  // namespace lockstep
