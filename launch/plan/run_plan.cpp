#include "launch/plan/run_plan.h"

#include <algorithm>
#include <string_view>

#include "core/gpu.h"
#include "core/integer.h"
#include "core/log.h"
#include "train/step/memory.h"

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
  if (gpu::devices().count > 0)
    if (const auto here = gpu::properties(0); here.name == gpu)
      cluster.hardware.hbm_bytes = here.memory_bytes;
  cluster.host_memory_bytes = all_memory_bytes(Device{});
  return cluster;
}

PlanErrors earlier_runs(const std::filesystem::path& file) {
  if (file.empty()) return {};
  try {
    return PlanErrors::read(file);
  } catch (const DataError& error) {
    log_warning(error.what(), "; the plan is not corrected by earlier runs");
    return {};
  }
}

std::optional<PlanFile> plan_that_is_there(const std::filesystem::path& file,
                                           const std::string& key) {
  auto plan = read_plan_file(file);
  if (!plan || plan->key.empty() || plan->key == key) return plan;
  log_info("removed ", file.string(), ", the plan of another configuration: ", plan->key);
  std::error_code stays;
  std::filesystem::remove(file, stays);
  return std::nullopt;
}

void count_mfu(PlanFile& plan, const Meter::Config& meter) {
  const auto count = [&](PlanFile::Step& step) {
    const auto utilization = meter.utilization(step.tokens_per_second);
    step.mfu = utilization.causal;
    step.mfu_square = utilization.square;
  };
  count(plan.step);
  if (plan.corrected) count(*plan.corrected);
}

PlanFile planned_run(const Config& config, const Cluster& cluster, const Meter::Config& meter,
                     const std::filesystem::path& plan_errors, const std::string& key,
                     TensorAcross across) {
  Estimate found = estimate(config, cluster, across);
  found.meter = meter;
  PlanFile plan =
      plan_file_of(found, cluster, earlier_runs(plan_errors).corrected(key, found.time));
  plan.key = key;
  return plan;
}

}  // namespace lockstep
