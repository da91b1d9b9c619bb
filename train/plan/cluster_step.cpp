#include "train/plan/cluster_step.h"

#include <algorithm>

namespace lockstep {
namespace {

// Of the seconds that a collective runs beside compute, those that compute loses at most.
constexpr double kMostLost = 0.9;

class Calls {
 public:
  explicit Calls(const Cluster& cluster)
      : cluster_(cluster), prices_(cluster), gpu_prices_(cluster.hardware) {}

  double seconds(const Op& op, const GroupPlace& place) const {
    if (op.kind == Op::Kind::collective && op.ranks == 1) return 0;
    const auto measured =
        op.kind == Op::Kind::collective
            ? cluster_.links.seconds(collective_of(op), place, is_beside(op.group), op.bytes)
            : cluster_.operators.seconds(op);
    return measured ? *measured : prices_.seconds(op, place);
  }

  // How many times longer compute takes beside `op`.
  double compute_beside(const Op& op, const GroupPlace& place) const {
    if (cluster_.device == Device::Kind::cpu)
      return cluster_.compute_beside;  // takes its processor
    if (op.kind != Op::Kind::collective || op.ranks == 1) return 1;
    if (cluster_.compute_beside != 1) return cluster_.compute_beside;
    const double lost =
        gpu_prices_.lost_share({.kind = collective_of(op),
                                .bytes = static_cast<double>(op.bytes),
                                .ranks = place.ranks,
                                .inside = std::max(place.ranks / place.domains, 1)});
    return 1 / (1 - std::min(lost, kMostLost));
  }

 private:
  // Groups whose collectives compute waits for at once; the others have streams of their own.
  static bool is_beside(std::string_view group) {
    return group != "tensor" && group != "all ranks";
  }

  const Cluster& cluster_;
  ClusterPrices prices_;
  Prices gpu_prices_;
};

}  // namespace

StepTime step_time_on(const Cluster& cluster, const StepProgram& program) {
  const Calls calls(cluster);
  const auto place_of = [&](const Op& op) {
    const auto found = program.groups.find(std::string_view(op.group));
    return found == program.groups.end() ? GroupPlace{} : found->second;
  };
  const auto alone = [&](const Op& op) { return calls.seconds(op, place_of(op)); };
  const auto slower = [&](const Op& op) { return calls.compute_beside(op, place_of(op)); };
  return step_time(program, {.seconds = alone,
                             .compute_beside = slower,
                             .other_beside = cluster.other_beside,
                             .wait_share = cluster.wait_share,
                             .launch_seconds = cluster.launch_seconds,
                             .host_computes = cluster.device == Device::Kind::cpu});
}

}  // namespace lockstep
