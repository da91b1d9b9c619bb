// PlanFile: RUN/plan.json, what a step of the run should take, and what of memory and storage
// (docs/formats.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"

namespace lockstep {

struct PlanFile {
  struct Time {
    std::string name;  // "products"; that of a Component
    double seconds = 0;
    bool operator==(const Time&) const = default;
  };
  struct Memory {
    std::string name;  // "weights"
    std::int64_t bytes = 0;
    bool operator==(const Memory&) const = default;
  };
  struct Step {
    static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

    double seconds = 0;
    double tokens_per_second = 0;    // of all ranks
    double mfu = kUnknown;           // by the causal count; kUnknown where no peak is known
    double mfu_square = kUnknown;    // by the other one
    std::vector<Time> components{};  // in the order in which tables have them

    // Seconds and rates as a run counts its own: what steps wait for saves is beside them.
    Step without_checkpoints() const;
  };

  Step step{};
  std::optional<Step> corrected{};  // by what earlier runs of the kind took
  std::vector<Memory> memory{};     // of the rank that needs most
  std::int64_t capacity_bytes = 0;  // of its device, or what a machine has for it
  std::int64_t checkpoint_bytes = 0;
  std::string cluster{};  // its name
  std::string key{};      // residual_key() of the run; empty: whoever wrote it did not say

  static PlanFile parse(const Json& json);  // throws DataError naming the member that is damaged
  Json to_json() const;
};

// Throws DataError where it cannot be written.
void write_plan_file(const std::filesystem::path& path, const PlanFile& plan);

// Nothing where there is no such file. Throws DataError where it is damaged.
std::optional<PlanFile> read_plan_file(const std::filesystem::path& path);

}  // namespace lockstep
