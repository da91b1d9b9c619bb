// The plan of a run: the estimate for its cluster, in RUN/plan.json. The log compares steps with
// it.
#pragma once

#include <filesystem>
#include <optional>

#include "launch/plan/cluster.h"
#include "launch/plan/estimate.h"
#include "launch/plan/plan_errors.h"
#include "train/config.h"
#include "train/observe/meter.h"
#include "train/observe/plan_file.h"

namespace lockstep {

// The components of a planned step; unknown names are ignored.
StepTime time_of(const PlanFile::Step& step);

// The cluster of a run without a cluster file: `nodes` hosts like this one with GPUs of this name.
// Returns nullopt for an unknown GPU.
std::optional<Cluster> cluster_here(const std::string& gpu, int ranks, int nodes);

// Plan errors of earlier runs, from the file beside a cluster file ("": none). An unreadable file
// gives a warning and no runs.
PlanErrors earlier_runs(const std::filesystem::path& file);

// RUN/plan.json of an earlier start, or placed there by a person. If it belongs to another run than
// `key`, it is removed with a log line, and the result is nullopt.
std::optional<PlanFile> plan_that_is_there(const std::filesystem::path& file,
                                           const std::string& key);

// Computes the MFU of the planned steps with `meter`.
void count_mfu(PlanFile& plan, const Meter::Config& meter);

// Plans a run. `meter` has the peak that the run uses for its own MFU. `residuals` is a file with
// plan errors of earlier runs (launch/plan/plan_errors.h), in which `key` is looked up. A missing
// file gives no corrected figures; an unreadable one gives a warning too. Throws ConfigError if the
// layout does not fit the cluster.
PlanFile planned_run(const Config& config, const Cluster& cluster, const Meter::Config& meter,
                     const std::filesystem::path& plan_errors, const std::string& key,
                     TensorAcross across = TensorAcross::refused);

}  // namespace lockstep
