#include "train/cluster_prices.h"

#include <algorithm>

namespace lockstep {
namespace {

// A call of a collective between CPUs that were not measured: a message of MPI or of a thread and
// its wake-up, one of each rank.
constexpr double kCpuCallSeconds = 20e-6;
constexpr double kMostSlowdown = 0.9;

// Groups whose collectives compute waits for at once; the others have streams of their own.
bool is_beside(std::string_view group) {
  return group != "tensor" && group != "all ranks";
}

}  // namespace

ClusterPrices::ClusterPrices(const Cluster& cluster)
    : cluster_(cluster), prices_(cluster.hardware) {}

double ClusterPrices::seconds(const Op& op, const GroupPlace& place) const {
  if (op.kind == Op::Kind::collective) return collective_seconds(op, place);
  if (const auto measured = cluster_.operators.seconds(op)) return *measured;
  return cluster_.device == Device::Kind::cuda ? prices_.seconds(op, 1) : cpu_seconds(op);
}

double ClusterPrices::collective_seconds(const Op& op, const GroupPlace& place) const {
  if (op.ranks == 1) return 0;
  if (const auto measured =
          cluster_.links.seconds(collective_of(op), place, is_beside(op.group), op.bytes))
    return *measured;
  if (cluster_.device == Device::Kind::cuda)
    return prices_.seconds(op, std::max(place.ranks / place.domains, 1));
  const auto& hardware = cluster_.hardware;
  const double bandwidth =
      place.domains == 1 ? hardware.nvlink_bytes_per_second : hardware.nic_bytes_per_second;
  return op.ranks * kCpuCallSeconds + static_cast<double>(op.bytes) / bandwidth;
}

// What a processor computes at its peak, or moves at its memory's.
double ClusterPrices::cpu_seconds(const Op& op) const {
  const double moved = static_cast<double>(op.bytes) / cluster_.hardware.hbm_bytes_per_second;
  const double peak = cluster_.hardware.peak_flops(op.dtype);
  return op.flops > 0 ? std::max(op.flops / peak, moved) : moved;
}

double ClusterPrices::compute_beside(const Op& op, const GroupPlace& place) const {
  if (op.kind != Op::Kind::collective) return 1;
  if (cluster_.compute_beside != 1 || cluster_.device == Device::Kind::cpu)
    return cluster_.compute_beside;
  // A slower ring takes fewer multiprocessors, and less of HBM.
  const auto& hardware = cluster_.hardware;
  const double ring =
      prices_.ring(place.ranks, std::max(place.ranks / place.domains, 1)).bytes_per_second;
  const double lost = hardware.slowdown * ring / hardware.nvlink_bytes_per_second;
  return 1 / (1 - std::min(lost, kMostSlowdown));
}

StepTime ClusterPrices::step(const StepProgram& program) const {
  const auto place_of = [&](const Op& op) {
    const auto found = program.groups.find(std::string_view(op.group));
    return found == program.groups.end() ? GroupPlace{} : found->second;
  };
  const auto alone = [&](const Op& op) { return seconds(op, place_of(op)); };
  const auto slower = [&](const Op& op) { return compute_beside(op, place_of(op)); };
  return step_time(program, {.seconds = alone,
                             .compute_beside = slower,
                             .other_beside = cluster_.other_beside,
                             .launch_seconds = cluster_.launch_seconds,
                             .host_computes = cluster_.device == Device::Kind::cpu});
}

}  // namespace lockstep
