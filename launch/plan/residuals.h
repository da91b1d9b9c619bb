// Residuals: how far steps were from their plans, by what was trained and how: a file beside
// cluster.json (cluster.residuals.json, docs/formats.md) that a run adds to when it ends, so that
// the next plan can say what it would be with the same errors, beside what it is.
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

struct ResidualRun {
  std::string key;             // residual_key()
  StepTime planned, measured;  // a mean step
};

// What a step's time depends on beside the cluster, as it was configured: "llama3 8.03G (32 layers
// of 4096, ...), 1 x 8192 of ...". Before a run settles what is left open: a plan has the same one.
std::string residual_key(const Config& config);

class Residuals {
 public:
  static constexpr std::size_t kMostRuns = 200;  // the oldest go

  // "cluster.json" -> "cluster.residuals.json"; "cluster.toml" -> "cluster.toml.residuals.json".
  static std::filesystem::path file_beside(const std::filesystem::path& cluster);
  // No runs where the file is not there. Throws DataError naming file and member.
  static Residuals read(const std::filesystem::path& file);
  // Where it is damaged no runs, and the file becomes FILE.damaged, unless there is one.
  static Residuals read_or_set_aside(const std::filesystem::path& file);
  void write(const std::filesystem::path& file) const;  // whole or not at all

  void add(ResidualRun run);  // in place of an earlier one of its key
  const std::vector<ResidualRun>& runs() const { return runs_; }

  // A plan of `key` with the errors of the run of that key: each component times measured /
  // planned; one that was planned to take nothing takes what it took. Without such a run, times the
  // median of that ratio over the runs that are alike: of which the component was planned to take
  // a quarter to four times as long. Nothing where there is neither.
  std::optional<StepTime> corrected(const std::string& key, const StepTime& planned) const;

  static Residuals parse(const Json& json);  // throws DataError
  Json to_json() const;

 private:
  std::vector<ResidualRun> runs_;  // the newest last
};

}  // namespace lockstep
