#include "launch/plan/cluster_step.h"

#include <algorithm>

namespace lockstep {
namespace {

// Maximum share of the time of a concurrent collective that compute loses.
constexpr double kMostLost = 0.9;

// Time of the host to launch a kernel, a call of NCCL, and each message of an all-to-all; assumed.
constexpr double kKernelSeconds = 4.5e-6, kNcclSeconds = 25e-6, kMessageSeconds = 0.7e-6;

}  // namespace

CallTimes::CallTimes(const Cluster& cluster, const StepProgram& program)
    : cluster_(cluster), program_(program), time_model_(cluster), gpu_prices_(cluster.hardware) {}

CallTime CallTimes::alone(const Op& op) const {
  if (op.is_nothing()) return {};
  const auto place = program_.place_of(op.group);
  const auto measured =
      op.kind == Op::Kind::collective
          ? cluster_.links.seconds(collective_of(op), place,
                                   runs_beside(op.group, Device{cluster_.device}), op.bytes)
          : cluster_.operators.seconds(op);
  return {.seconds = measured ? *measured : time_model_.seconds(op, place),
          .is_measured = measured.has_value()};
}

Formula CallTimes::explain(const Op& op) const {
  return time_model_.explain(op, program_.place_of(op.group));
}

CollectiveCall CallTimes::call(const Op& op) const {
  return collective_call(op, program_.place_of(op.group).inside());
}

double CallTimes::network_share(const Op& op) const {
  if (op.is_nothing() || program_.place_of(op.group).domains == 1) return 0;
  return 1 - gpu_prices_.latency_seconds(call(op)) / gpu_prices_.collective_seconds(call(op));
}

double CallTimes::launch_seconds(const Op& op) const {
  const bool is_on_host = cluster_.device == Device::Kind::cpu || op.is_nothing();
  if (is_on_host || program_.shape.mesh.world() == 1) return cluster_.launch_seconds;  // or a graph
  const double kernel = cluster_.launch_seconds > 0 ? cluster_.launch_seconds : kKernelSeconds;
  if (op.kind != Op::Kind::collective) return kernel;
  const auto made = call(op);
  const int messages = made.kind == Collective::all_to_all ? 2 * (made.ranks - 1) : 0;
  return kNcclSeconds + messages * kMessageSeconds;
}

double CallTimes::compute_beside(const Op& op) const {
  const double measured = cluster_.compute_beside;
  if (cluster_.device == Device::Kind::cpu) return std::max(measured, 1.0);  // it uses CPU cores
  if (op.kind != Op::Kind::collective || op.is_nothing()) return 1;
  if (measured > 0) return measured;
  const double lost = gpu_prices_.lost_share(call(op));
  return 1 / (1 - std::min(lost, kMostLost));
}

StepTime step_time_on(const Cluster& cluster, const StepProgram& program) {
  const CallTimes times(cluster, program);
  const auto alone = [&](const Op& op) { return times.alone(op).seconds; };
  const auto slower = [&](const Op& op) { return times.compute_beside(op); };
  const bool on_gpus = cluster.device == Device::Kind::cuda;
  const auto extends_order = [&](const Op& op) {
    return on_gpus && !times.call(op).by_copy_engines;
  };
  const auto launch = [&](const Op& op) { return times.launch_seconds(op); };
  const auto network_share = [&](const Op& op) { return on_gpus ? times.network_share(op) : 0.0; };
  // The slowest GPU of all sets the pace, in each group that it belongs to. A share that was
  // measured on fewer GPUs is too low.
  const double slowest =
      on_gpus ? kSpeedSpread * expected_maximum(program.shape.mesh.world()) : 0.0;
  return step_time(program, {.seconds = alone,
                             .compute_beside = slower,
                             .other_beside = cluster.other_beside,
                             .wait_share = std::max(cluster.wait_share, slowest),
                             .launch_seconds = launch,
                             .host_computes = !on_gpus,
                             .extends_order = extends_order,
                             .network_share = network_share});
}

}  // namespace lockstep
