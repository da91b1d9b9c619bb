// PlanFile: what RUN/plan.json says a step should cost (docs/observability.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep {

struct PlanFile {
  struct Part {
    std::string name;
    double value = 0;
  };

  double step_seconds = 0;
  double tokens_per_second = std::numeric_limits<double>::quiet_NaN();  // NaN here: not said
  double mfu = std::numeric_limits<double>::quiet_NaN();
  double capacity_bytes = std::numeric_limits<double>::quiet_NaN();
  std::vector<Part> components;  // seconds, in the plan's order
  std::vector<Part> memory;      // bytes
  std::string cluster;
  // By what earlier runs were measured to take; empty: not said.
  std::optional<double> corrected_step_seconds{};
  std::vector<Part> corrected_components{};
};

// Nothing where there is no such file; throws DataError where it is damaged.
std::optional<PlanFile> read_plan_file(const std::filesystem::path& path);

}  // namespace lockstep
