#include "train/run_plan.h"

#include <algorithm>
#include <string_view>

#include "core/integer.h"
#include "train/residuals.h"

namespace lockstep {
namespace {

constexpr int kMachineDomain = 8;

PlanFile::Step step_of(const StepTime& time, double batch_tokens, const Meter::Config& meter) {
  PlanFile::Step step{.seconds = time.total(), .tokens_per_second = batch_tokens / time.total()};
  if (meter.peak_flops > 0) {
    step.mfu = step.tokens_per_second * meter.seconds_at_peak(meter.flops_per_token);
    step.mfu_square = step.tokens_per_second * meter.seconds_at_peak(meter.flops_per_token_square);
  }
  for (std::size_t i = 0; i < kComponents; ++i)
    if (time.seconds[i] > 0)
      step.components.push_back({name(static_cast<Component>(i)), time.seconds[i]});
  return step;
}

}  // namespace

PlanFile plan_file_of(const Estimate& estimate, const Cluster& cluster) {
  PlanFile plan{.step = step_of(estimate.time, static_cast<double>(estimate.meter.step_tokens),
                                estimate.meter),
                .capacity_bytes = estimate.capacity_bytes,
                .checkpoint_bytes = estimate.save.bytes,
                .cluster = cluster.name};
  const auto add = [&](const char* what, std::int64_t bytes) {
    if (bytes > 0) plan.memory.push_back({what, bytes});
  };
  for (std::size_t i = 0; i < kPurposes; ++i)
    add(name(static_cast<Purpose>(i)), estimate.by_purpose[i]);
  if (cluster.device == Device::Kind::cpu)  // of which pinned memory and copies take too
    add("host_copies", estimate.bytes.training.pinned + estimate.bytes.host_state);
  add("constants", estimate.constant_bytes);
  return plan;
}

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
  const Estimate found = estimate(config, cluster);
  const auto tokens = static_cast<double>(config.train.batch_tokens);
  PlanFile plan = plan_file_of(found, cluster);
  plan.step = step_of(found.time, tokens, meter);
  if (residuals.empty()) return plan;
  const auto earlier = Residuals::read(residuals);
  if (!earlier.runs().empty())
    plan.corrected = step_of(earlier.corrected(residual_key(config), found.time), tokens, meter);
  return plan;
}

}  // namespace lockstep
