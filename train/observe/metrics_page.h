// MetricsPage: the newest numbers of a run where Prometheus finds them: a text file for the node
// exporter's textfile collector, and a port (train/observe/metrics_server.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include "train/config.h"
#include "train/observe/metrics_server.h"
#include "train/observe/prometheus.h"
#include "train/run_directory.h"

namespace lockstep {

class MetricsPage {
 public:
  // When the process begins, to do `steps`: shows the last step of the one before. Warns where the
  // port cannot be had: the run goes on without.
  // `run` outlives it.
  MetricsPage(const RunDirectory& run, const Config::Log& config, std::int64_t steps);

  // Each throws as fail_io() does where the file cannot be written, and as RunDirectory::check()
  // where the run's directory, which the file lies in, is not the run's any more.
  void publish();  // what is known so far
  // The first step begins, behind `step`; or none does.
  void begin(std::int64_t step, const std::optional<Goodput>& goodput);
  // At most once a second: whether it is now.
  bool show(const StepReport& report, const std::optional<Goodput>& goodput);
  // The last numbers; of goodput that is not known what was shown stays. checkpoint_seconds: of
  // saving behind the last step.
  void end(const std::optional<Goodput>& goodput, double checkpoint_seconds);

 private:
  using Clock = std::chrono::steady_clock;

  void recall(const RunDirectory& run);
  void count(const StepReport& report);

  const RunDirectory& run_;
  std::filesystem::path file_, plan_;  // file_ empty: none
  bool is_in_run_;                     // the file is
  std::optional<MetricsServer> server_;
  Exposed exposed_;
  bool knows_plan_ = false;
  Clock::time_point next_;
};

}  // namespace lockstep
