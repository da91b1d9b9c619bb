// Checks of the error counters of host and GPU.
#pragma once

#include "core/system/counters.h"
#include "core/system/gpu_monitor.h"
#include "launch/preflight/preflight_rank.h"

namespace lockstep {

struct HealthCounters {
  Counters machine;
  GpuHealth gpu;
};
HealthCounters read_counters(const GpuMonitor* monitor);

// Reports counters that grew since `before`, and states that are always faults.
void check_counters(PreflightRank& rank, const HealthCounters& before, const HealthCounters& now);
void check_gpu_counters(PreflightRank& rank, const GpuHealth& before, const GpuHealth& now);

}  // namespace lockstep
