// MetricsPage publishes the newest metrics of a run for Prometheus: in a text file for the node
// exporter's textfile collector, and at a port (train/observe/metrics_server.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include "train/config.h"
#include "train/observe/metrics_server.h"
#include "train/observe/prometheus.h"
#include "train/run_directory.h"

namespace lockstep {

// Destinations of copies of checkpoints.
inline constexpr const char *kCopyToRun = "run", *kCopyToArchive = "archive";

class MetricsPage {
 public:
  // Make it when the process begins. It shows the last step of the previous process. If the port
  // cannot be opened, it warns and continues without the port. `run` outlives it.
  MetricsPage(const RunDirectory& run, const Config& config);

  // Each throws like fail_io() if the file cannot be written. If the file is in the run's
  // directory, each throws like RunDirectory::check().
  void publish();  // publishes the known values
  // Call it when the first step begins, with the last completed step, or if there is no step to do.
  void begin(std::int64_t step, const std::optional<Goodput>& goodput);
  // Publishes at most once a second. Returns whether it did.
  bool show(const StepReport& report, const std::optional<Goodput>& goodput);
  // Counts a save that ended, or with `copied_to` (kCopyTo...) a copy. show() publishes it.
  void count_save(std::int64_t step, bool failed, const std::string& copied_to);
  // Publishes the last values. If goodput is nullopt, the published one stays. checkpoint_seconds:
  // time of saving after the last step.
  void end(const std::optional<Goodput>& goodput, double checkpoint_seconds);

 private:
  using Clock = std::chrono::steady_clock;

  void recall(const RunDirectory& run);
  void recall_save(const std::filesystem::path& saved_step);
  void count(const StepReport& report);

  const RunDirectory& run_;
  std::filesystem::path file_, plan_;  // empty file_: no file
  bool is_in_run_;                     // the file is in the run's directory
  std::optional<MetricsServer> server_;
  Exposed exposed_;
  bool knows_plan_ = false;
  Clock::time_point next_;
};

}  // namespace lockstep
