// Prometheus: what a run shows of itself, in Prometheus's text format
// (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4). docs/observability.md lists
// the names.
#pragma once

#include <optional>
#include <string>

#include "train/observe/ledger.h"
#include "train/observe/plan_file.h"
#include "train/observe/step_report.h"

namespace lockstep {

struct Exposed {
  std::string run;  // its name
  bool is_running = true;
  std::int64_t steps = 0;                // of the run
  std::optional<std::int64_t> step{};    // the last one, of this process or the one it goes on from
  double last_step_time_seconds = 0;     // since 1970; before this process's first: its begin
  std::optional<StepReport> report{};    // of that; what is not known of it is left out
  std::optional<StepTime> time{};        // of the last step that was timed
  std::optional<SlowestRank> slowest{};  // of the last steps of which ranks compared what they need
  std::optional<double> validation_loss{};
  std::optional<GpuReading> gpu{};
  std::optional<Goodput> goodput{};
  std::optional<PlanFile::Step> planned{};
  // Since this process's first step.
  std::int64_t tokens = 0, skipped_steps = 0;
  double data_wait_seconds = 0, checkpoint_seconds = 0, evaluation_seconds = 0, energy_joules = 0;
};

std::string prometheus_text(const Exposed& exposed);

}  // namespace lockstep
