#include "train/plan/run_plan.h"

#include <algorithm>
#include <string_view>

#include "core/integer.h"
#include "train/memory.h"
#include "train/plan/residuals.h"

namespace lockstep {

StepTime time_of(const PlanFile::Step& step) {
  StepTime time;
  for (std::size_t i = 0; i < kComponents; ++i)
    for (const auto& [called, seconds] : step.components)
      if (called == name(static_cast<Component>(i))) time.seconds[i] = seconds;
  return time;
}

std::optional<Cluster> cluster_here(const std::string& gpu, int ranks, int nodes) {
  const Hardware* hardware = find_hardware(gpu);
  if (hardware == nullptr) return std::nullopt;
  Cluster cluster = cluster_of_gpus(*hardware, static_cast<int>(divide_up(ranks, nodes)), nodes);
  cluster.host_memory_bytes = all_memory_bytes(Device{});
  return cluster;
}

PlanFile planned_run(const Config& config, const Cluster& cluster, const Meter::Config& meter,
                     const std::filesystem::path& residuals) {
  Estimate found = estimate(config, cluster);
  found.meter = meter;
  std::optional<StepTime> corrected;
  if (!residuals.empty()) {
    const auto earlier = Residuals::read(residuals);
    if (!earlier.runs().empty()) corrected = earlier.corrected(residual_key(config), found.time);
  }
  return plan_file_of(found, cluster, corrected);
}

}  // namespace lockstep
