#include "launch/plan/estimate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/integer.h"
#include "core/units.h"
#include "launch/plan/cluster_step.h"
#include "launch/plan/cluster_topology.h"
#include "launch/plan/plan_band.h"
#include "train/fp8_sizes.h"
#include "train/layout.h"
#include "train/run/attention_choice.h"
#include "train/run/peak_flops.h"
#include "train/run/run_config.h"

namespace lockstep {
namespace {

// Constants if they were not measured. On a GPU: a context of 512 MiB, and the reserve of `train`.
// On CPUs: processes used 16 MiB, or 26 MiB with MPI.
constexpr std::int64_t kGpuConstantBytes = (std::int64_t{1} << 29) + kGpuReserveBytes;
constexpr std::int64_t kHostConstantBytes = std::int64_t{32} << 20;

std::int64_t constants_of(const Cluster& cluster) {
  if (cluster.constant_bytes > 0) return cluster.constant_bytes;
  return cluster.device == Device::Kind::cuda ? kGpuConstantBytes : kHostConstantBytes;
}

std::int64_t sum_of(const std::array<std::int64_t, kPurposes>& by_purpose) {
  return std::accumulate(by_purpose.begin(), by_purpose.end(), std::int64_t{0});
}

int nodes_of(const Cluster& cluster, int ranks) {
  return static_cast<int>(divide_up(ranks, cluster.ranks_per_node));
}

// Share of all ranks on the node with most ranks.
double share_of_node(const Cluster& cluster, std::int64_t ranks) {
  const auto here = std::min<std::int64_t>(ranks, cluster.ranks_per_node);
  return static_cast<double>(here) / static_cast<double>(ranks);
}

double mean_of_each(double seconds, std::int64_t steps) {
  return steps > 0 ? seconds / static_cast<double>(steps) : 0.0;
}

// Wait for data, which the threads of the loader read ahead once per node.
double data_wait_seconds(const Config& c, const Cluster& cluster, double step_seconds) {
  if (cluster.storage_read_bytes_per_second <= 0) return 0;
  const double token_bytes = c.model.vocabulary <= 1 << 16 ? 2 : 4;
  const double bytes = token_bytes * static_cast<double>(c.train.batch_tokens) *
                       share_of_node(cluster, c.layout.ranks);
  return std::max(bytes / cluster.storage_read_bytes_per_second - step_seconds, 0.0);
}

using CallKind = std::pair<std::string_view, Group>;

Estimate::Calls count(const std::map<CallKind, bool>& calls) {
  Estimate::Calls counted{.kinds = static_cast<int>(calls.size())};
  for (const auto& [kind, is_measured] : calls)
    counted.measured += is_measured ? 1 : 0;
  return counted;
}

void count_calls(const Cluster& cluster, const StepProgram& program, Estimate& found) {
  const CallTimes times(cluster, program);
  std::map<CallKind, bool> operators, collectives;
  for (const auto& entry : program.log->entries()) {
    const Op& op = entry.op;
    if (entry.what != OpLog::What::op || op.kind == Op::Kind::transfer || op.is_nothing()) continue;
    auto& calls = op.kind == Op::Kind::collective ? collectives : operators;
    const CallKind kind{op.name, op.group};
    if (!calls.contains(kind)) calls[kind] = times.alone(op).is_measured;
  }
  found.operators = count(operators);
  found.collectives = count(collectives);
}

SaveTimes save_times(const Config& c, const Cluster& cluster, const Estimate& found) {
  const auto& hardware = cluster.hardware;
  const auto ranks = static_cast<int>(c.layout.ranks);
  const double step = found.time.total();  // without checkpoints
  SaveTimes save{.bytes = checkpoint_bytes(c),
                 .copies = found.bytes.copies != HostStaging::Copies::none,
                 .nodes = nodes_of(cluster, ranks),
                 .hidden_seconds = step - found.time[Component::optimizer]};
  const auto bytes = static_cast<double>(save.bytes);
  // A CPU reads and writes each byte.
  save.copied_per_second = cluster.device == Device::Kind::cuda ? hardware.host_bytes_per_second
                                                                : hardware.hbm_bytes_per_second / 2;
  save.copy_seconds = bytes / ranks / save.copied_per_second;
  if (cluster.storage_write_bytes_per_second > 0)
    save.write_seconds =
        bytes * share_of_node(cluster, ranks) / cluster.storage_write_bytes_per_second;
  const auto every = c.checkpoint.every_steps > 0 ? c.checkpoint.every_steps : c.train.steps;
  save.interval_steps = std::min(every, c.train.steps);
  save.interval_seconds = static_cast<double>(save.interval_steps) * step;
  save.update_stall_seconds =
      std::max((save.copies ? save.copy_seconds : save.write_seconds) - save.hidden_seconds, 0.0);
  save.next_stall_seconds = save.next_stall_after(save.interval_seconds);
  return save;
}

void count_rates(Estimate& found) {
  found.tokens_per_second = found.tokens_per_second_of(found.time);
  found.mfu = found.mfu_of(found.time);
}

// Adds checkpoints to an estimate that is complete otherwise.
void add_saves(const Config& c, const Cluster& cluster, Estimate& found) {
  found.save = save_times(c, cluster, found);
  found.time[Component::checkpoint] =
      mean_of_each(found.save.stall_seconds(), c.checkpoint.every_steps);
  count_rates(found);
}

void require_fp8_on(const Cluster& cluster, const Config& c) {
  if (c.precision.fp8 == Fp8Matmuls::off || cluster.device == Device::Kind::cpu) return;
  const Hardware& gpu = cluster.hardware;
  require_fp8(c.precision.fp8, capability_of(gpu.architecture), gpu.name);
  if (gpu.fp8_flops == 0)
    throw ConfigError(
        str("precision.fp8: ", cluster.name, " does not set hardware.fp8_flops (fp8 matmul rate)"));
}

}  // namespace

Config planned_on(const Cluster& cluster, const Config& written) {
  const Device device{cluster.device};
  Config config = with_rows(written, written.data.rows);
  if (cluster.device == Device::Kind::cuda)
    config.train.threads = 1;
  else if (config.train.threads == 0)
    config.train.threads = cluster.threads;
  config.train.attention = planned_attention(config, device);
  return config;
}

MemoryRoom room_on(const Cluster& cluster, int ranks) {
  const int here = std::min(ranks, cluster.ranks_per_node);
  MemoryRoom room{.device = Device{cluster.device},
                  .ranks = here,
                  .domain_ranks = cluster.hardware.domain_ranks};
  const auto each = std::max<std::int64_t>(cluster.hardware.hbm_bytes - constants_of(cluster), 0);
  const bool on_gpus = cluster.device == Device::Kind::cuda;
  const auto constants = [&](std::int64_t bytes) {
    return str(", after constants of ", human_memory(static_cast<double>(bytes)));
  };
  room.gpu = str("a GPU of ", cluster.name, constants(constants_of(cluster)));
  room.machine = str("a node of ", cluster.name,
                     on_gpus ? std::string() : constants(here * constants_of(cluster)));
  if (on_gpus) {
    room.gpu_bytes = each;
    if (cluster.host_memory_bytes > 0) room.host_bytes = cluster.host_memory_bytes;
  } else {
    room.host_bytes = here * each;
  }
  return room;
}

std::int64_t Estimate::needed_bytes() const {
  const auto each = bytes.sum();
  const bool on_gpus = room.device.kind == Device::Kind::cuda;
  return each.device + constant_bytes + (on_gpus ? 0 : each.pinned);
}

std::int64_t Estimate::missing_bytes() const {
  return std::max<std::int64_t>(needed_bytes() - capacity_bytes, 0);
}

std::int64_t Estimate::missing_host_bytes() const {
  if (room.device.kind == Device::Kind::cpu) return 0;
  return std::max<std::int64_t>(bytes.sum().pinned - room.host_bytes / room.ranks, 0);
}

Estimate estimate(const Config& config, const Cluster& cluster, TensorAcross across) {
  const Config c = planned_on(cluster, config);
  require_fp8_on(cluster, c);
  const Device device{cluster.device};
  const auto training = training_config(c);
  const int ranks = training.mesh.world();
  const auto topology = placed_in(training.mesh, launched_on(cluster, ranks), across);
  const auto program = record_step(training, device, threads_of(c), 0, &topology);
  Estimate found;
  found.time = step_time_on(cluster, program);
  found.by_purpose = program.peak_by_purpose;
  found.pinned_by_purpose = program.pinned_by_purpose;
  found.constant_bytes = constants_of(cluster);
  found.constants_measured = cluster.constant_bytes > 0;
  found.room = room_on(cluster, ranks);
  found.capacity_bytes = cluster.hardware.hbm_bytes;
  found.ranks = ranks;
  count_calls(cluster, program, found);
  found.bytes = run_bytes(c, found.room);
  LOCKSTEP_CHECK(sum_of(found.by_purpose) == found.bytes.training.device &&
                     sum_of(found.pinned_by_purpose) == found.bytes.training.pinned,
                 "a recorded step uses different memory than a run");
  found.meter = meter_config(
      c, device, [&](DType dtype) { return ranks * cluster.hardware.peak_flops(dtype); });
  found.time[Component::data] += data_wait_seconds(c, cluster, found.time.total());
  add_saves(c, cluster, found);
  return found;
}

Estimate corrected(const Estimate& estimate, const Config& config, const Cluster& cluster,
                   const StepTime& step) {
  Estimate found = estimate;
  found.time = step;
  found.time[Component::checkpoint] = 0;
  add_saves(config, cluster, found);
  found.time[Component::checkpoint] = step[Component::checkpoint];
  count_rates(found);
  return found;
}

double Estimate::tokens_per_second_of(const StepTime& step) const {
  return static_cast<double>(meter.step_tokens) / step.total();
}

Utilization Estimate::mfu_of(const StepTime& step) const {
  return meter.utilization(tokens_per_second_of(step));
}

std::vector<PlanFile::Memory> host_memory(const Estimate& e) {
  std::vector<PlanFile::Memory> all;
  const auto add = [&](const char* name, std::int64_t bytes) {
    if (bytes > 0) all.push_back({name, bytes});
  };
  for (std::size_t i = 0; i < kPurposes; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    // The unnamed rest are the numbers of a step, which the host reads.
    add(purpose == Purpose::workspaces ? "numbers" : name(purpose), e.pinned_by_purpose[i]);
  }
  add("batches", e.bytes.batches);
  add("checkpoints", e.bytes.host_staging);
  return all;
}

PlanFile plan_file_of(const Estimate& e, const Cluster& cluster,
                      const std::optional<StepTime>& corrected) {
  const auto step_of = [&](const StepTime& time) {
    const auto mfu = e.mfu_of(time);
    PlanFile::Step step{.seconds = time.total(),
                        .tokens_per_second = e.tokens_per_second_of(time),
                        .mfu = mfu.causal,
                        .mfu_square = mfu.square};
    for (std::size_t i = 0; i < kComponents; ++i)
      if (time.seconds[i] > 0)
        step.components.push_back({name(static_cast<Component>(i)), time.seconds[i]});
    return step;
  };
  PlanFile plan{.step = step_of(e.time),
                .capacity_bytes = e.capacity_bytes,
                .checkpoint_bytes = e.save.bytes,
                .cluster = cluster.name};
  plan.band = plan_band(cluster, e.ranks).band;
  if (corrected) plan.corrected = step_of(*corrected);
  for (std::size_t i = 0; i < kPurposes; ++i)
    plan.memory.push_back({name(static_cast<Purpose>(i)), e.by_purpose[i]});
  if (cluster.device == Device::Kind::cpu)  // host copies use the same memory
    plan.memory.push_back({"host_copies", e.bytes.sum().pinned});
  if (e.bytes.nccl > 0) plan.memory.push_back({"nccl", e.bytes.nccl});
  plan.memory.push_back({"constants", e.constant_bytes});
  return plan;
}

}  // namespace lockstep
