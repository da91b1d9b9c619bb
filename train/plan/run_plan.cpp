#include "train/plan/run_plan.h"

#include <algorithm>
#include <string_view>

#include "core/integer.h"
#include "train/plan/residuals.h"

namespace lockstep {
namespace {

constexpr int kMachineDomain = 8;

}  // namespace

StepTime time_of(const PlanFile::Step& step) {
  StepTime time;
  for (std::size_t i = 0; i < kComponents; ++i)
    for (const auto& [called, seconds] : step.components)
      if (called == name(static_cast<Component>(i))) time.seconds[i] = seconds;
  return time;
}

std::optional<Cluster> cluster_of_gpus(const std::string& gpu, int ranks, int nodes) {
  const Hardware* hardware = find_hardware(gpu);
  if (hardware == nullptr) return std::nullopt;
  Cluster cluster;
  cluster.name = str(ranks, " x ", hardware->name);
  cluster.nodes = nodes;
  cluster.ranks_per_node = static_cast<int>(divide_up(ranks, nodes));
  cluster.hardware = *hardware;
  if (cluster.hardware.domain_ranks <= kMachineDomain)  // which ends with the machine
    cluster.hardware.domain_ranks = std::min(cluster.hardware.domain_ranks, cluster.ranks_per_node);
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
