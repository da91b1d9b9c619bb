// RunPlan: what a run should take, by the estimate for its cluster: RUN/plan.json, and what the log
// compares steps with.
#pragma once

#include <filesystem>
#include <optional>

#include "launch/plan/cluster.h"
#include "launch/plan/estimate.h"
#include "launch/plan/residuals.h"
#include "train/config.h"
#include "train/observe/meter.h"
#include "train/observe/plan_file.h"

namespace lockstep {

// Of a plan's components; a name that is none of today's is left out.
StepTime time_of(const PlanFile::Step& step);

// What a run is planned for, where no file says it: so many ranks on so many machines like this
// one, with GPUs of this name. Nothing where they are not known.
std::optional<Cluster> cluster_here(const std::string& gpu, int ranks, int nodes);

// Of the file beside a cluster's ("": none); with a warning none where it cannot be read.
Residuals earlier_runs(const std::filesystem::path& file);

// RUN/plan.json of an earlier start, or that a person put there. Nothing, said with what it is of,
// where that is another run than that of `key`.
std::optional<PlanFile> plan_that_is_there(const std::filesystem::path& file,
                                           const std::string& key);

// MFU of the planned steps by `meter`.
void count_mfu(PlanFile& plan, const Meter::Config& meter);

// Its MFU is by the peak that the run's own is by. residuals: of earlier runs, see
// launch/plan/residuals.h, of `key`; no such file: no corrected figures, nor, with a warning, where
// it cannot be read. Throws ConfigError where the layout does not fit the cluster.
PlanFile planned_run(const Config& config, const Cluster& cluster, const Meter::Config& meter,
                     const std::filesystem::path& residuals, const std::string& key,
                     TensorAcross across = TensorAcross::refused);

}  // namespace lockstep
