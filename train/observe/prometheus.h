// Prometheus: the metrics of a run in Prometheus's text format
// (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4). docs/observability.md lists
// the names.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "train/observe/ledger.h"
#include "train/observe/plan_file.h"
#include "train/observe/step_report.h"

namespace lockstep {

// Saves of checkpoints to one place.
struct SaveCounts {
  std::optional<std::int64_t> step{};          // of the newest checkpoint
  double time_seconds = StepReport::kUnknown;  // since 1970, when it was complete
  std::int64_t failures = 0;                   // of this process
};

struct Exposed {
  std::string run;  // name of the run
  bool is_running = true;
  std::int64_t steps = 0;                // last step of the run
  std::optional<std::int64_t> step{};    // last step of this process, or of the previous one
  double last_step_time_seconds = 0;     // since 1970; before the first step: begin of this process
  std::optional<StepReport> report{};    // report of `step`; unknown values are omitted
  std::optional<StepTime> time{};        // of the last timed step
  std::optional<SlowestRank> slowest{};  // of the last comparison of ranks
  std::optional<double> validation_loss{};
  std::optional<GpuReading> gpu{};
  std::optional<Goodput> goodput{};
  std::optional<PlanFile::Step> planned{};
  SaveCounts saves{};
  std::map<std::string, SaveCounts> copies{};  // by destination
  std::int64_t checkpoint_interval_steps = 0;  // 0: unknown, or only at the end
  // Sums since this process's first step.
  std::int64_t tokens = 0, skipped_steps = 0, nonfinite_steps = 0, loss_spikes = 0;
  double data_wait_seconds = 0, checkpoint_seconds = 0, evaluation_seconds = 0, energy_joules = 0;
};

std::string prometheus_text(const Exposed& exposed);

}  // namespace lockstep
