// PlanFile: RUN/plan.json, the planned time of a step, and the planned use of memory and storage
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
    std::string name;  // name of a Component, such as "products"
    double seconds = 0;
    bool operator==(const Time&) const = default;
  };
  struct Memory {
    std::string name;  // such as "weights"
    std::int64_t bytes = 0;
    bool operator==(const Memory&) const = default;
  };
  struct Step {
    static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

    double seconds = 0;
    double tokens_per_second = 0;    // of all ranks
    double mfu = kUnknown;           // causal count; kUnknown: no peak is known
    double mfu_square = kUnknown;    // full-square count
    std::vector<Time> components{};  // in the order of tables

    // The step as a run measures it: seconds and rates without the wait for checkpoints.
    Step without_checkpoints() const;
  };

  // Measured / planned step time of similar runs: 80 % are between `low` and `high`.
  struct Band {
    double low = 1, high = 1;  // equal: unknown
    bool is_known() const { return low < high; }
    bool operator==(const Band&) const = default;
  };

  Step step{};
  Band band{};
  std::optional<Step> corrected{};  // with the plan errors of earlier similar runs
  std::vector<Memory> memory{};     // of the rank that needs most
  std::int64_t capacity_bytes = 0;  // of its device, or the rank's share of its host
  std::int64_t checkpoint_bytes = 0;
  std::string cluster{};  // name of the cluster
  std::string key{};      // plan_error_key() of the run; empty: the writer did not set it

  static PlanFile parse(const Json& json);  // throws DataError naming the damaged member
  Json to_json() const;
};

// Throws DataError if the file cannot be written.
void write_plan_file(const std::filesystem::path& path, const PlanFile& plan);

// Returns nullopt if the file does not exist. Throws DataError if it is damaged.
std::optional<PlanFile> read_plan_file(const std::filesystem::path& path);

}  // namespace lockstep
