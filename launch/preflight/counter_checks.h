// Checks of what the machine and the GPU count of their own faults.
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

// What grew since `before`, and what must never be.
void check_counters(PreflightRank& rank, const HealthCounters& before, const HealthCounters& now);
void check_gpu_counters(PreflightRank& rank, const GpuHealth& before, const GpuHealth& now);

}  // namespace lockstep
