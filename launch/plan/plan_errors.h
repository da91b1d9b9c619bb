// PlanErrors: plan errors of earlier runs, by configuration, in a file beside cluster.json
// (cluster.residuals.json, docs/formats.md). A run adds its errors when it ends. The next plan
// shows corrected figures beside its own.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "launch/plan/step_time.h"
#include "train/config.h"

namespace lockstep {

struct PlanErrorRun {
  std::string key;             // plan_error_key()
  StepTime planned, measured;  // of the mean step
};

// Describes all that the time of a step depends on besides the cluster, as configured: "llama3
// 8.03G (32 layers of 4096, ...), 1 x 8192 of ...". Run and plan have the same key, because
// automatic values are not resolved in it.
std::string plan_error_key(const Config& config);

class PlanErrors {
 public:
  static constexpr std::size_t kMostRuns = 200;  // older runs are dropped

  // "cluster.json" -> "cluster.residuals.json"; "cluster.toml" -> "cluster.toml.residuals.json".
  static std::filesystem::path file_beside(const std::filesystem::path& cluster);
  // Returns no runs if the file does not exist. Throws DataError with file and member.
  static PlanErrors read(const std::filesystem::path& file);
  // Renames a damaged file to FILE.damaged and returns no runs; throws if FILE.damaged exists.
  static PlanErrors read_or_set_aside(const std::filesystem::path& file);
  void write(const std::filesystem::path& file) const;  // atomically

  void add(PlanErrorRun run);  // replaces an earlier run with the same key
  const std::vector<PlanErrorRun>& runs() const { return runs_; }

  // Corrects a plan of `key`. If an earlier run has the same key, each component is multiplied by
  // its measured / planned time; a component without planned time takes its measured time.
  // Otherwise each component is multiplied by the median ratio of similar runs, in which its
  // planned time was 1/4 to 4 times as long. Returns nullopt if there are no such runs either.
  std::optional<StepTime> corrected(const std::string& key, const StepTime& planned) const;

  static PlanErrors parse(const Json& json);  // throws DataError
  Json to_json() const;

 private:
  std::vector<PlanErrorRun> runs_;  // newest last
};

}  // namespace lockstep
