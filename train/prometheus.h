// Prometheus: what a run shows of itself, in Prometheus's text format
// (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4). docs/observability.md lists
// the names.
#pragma once

#include <optional>
#include <string>

#include "train/ledger.h"
#include "train/plan/plan_file.h"
#include "train/step_report.h"

namespace lockstep {

struct Exposed {
  std::string run;  // its name
  bool is_running = true;
  StepReport report{};  // of the last step; what is not known of it is left out
  double last_step_time_seconds =
      0;            // since 1970; before the first step of this process: its start
  StepTime time{};  // of the last step that was timed
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
