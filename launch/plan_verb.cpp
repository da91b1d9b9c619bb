#include "launch/plan_verb.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/gpu.h"
#include "core/integer.h"
#include "core/thread_pool.h"
#include "core/units.h"
#include "launch/cluster_file.h"
#include "launch/output.h"
#include "launch/plan/plan.h"
#include "train/plan/residuals.h"

namespace lockstep {
namespace {

constexpr double kAdapterPayload = 46.0 / 50;  // of its rate, see train/plan/hardware.cpp

// NVLink domains of more than a machine's GPUs are those of racks.
constexpr int kMostOfMachine = 8;

Hardware in_machines(Hardware gpu, int ranks_per_node) {
  if (gpu.domain_ranks <= kMostOfMachine)
    gpu.domain_ranks = std::min(gpu.domain_ranks, ranks_per_node);
  return gpu;
}

Cluster of_gpus(const Hardware& gpu, int ranks_per_node) {
  Cluster cluster;
  cluster.name = gpu.name;
  cluster.ranks_per_node = ranks_per_node;
  cluster.hardware = in_machines(gpu, ranks_per_node);
  return cluster;
}

// Of the GPUs that are here.
Cluster cluster_here() {
  const auto here = gpu::devices();
  const auto name = here.count > 0 ? gpu::properties(0).name : "";
  const auto* known = here.count > 0 ? find_hardware(name) : nullptr;
  if (known != nullptr) return of_gpus(*known, here.count);
  throw ConfigError(str(
      "plan: for which machines? ",
      here.count > 0 ? str(name, " is no GPU that is known; name") : std::string("Name"),
      " a file by --cluster (of configs/clusters, or the cluster.json of `lockstep preflight`), or "
      "a GPU by --gpu, such as --gpu H100"));
}

Cluster cluster_of(const PlanOptions& options) {
  Cluster cluster;
  if (!options.cluster.empty()) {
    cluster = load_cluster(options.cluster);
    if (!options.gpu.empty()) {  // of another GPU nothing was measured, nor is its price known
      if (cluster.device == Device::Kind::cpu)
        throw ConfigError(str("--gpu: ", cluster.name, " has no GPUs"));
      cluster.hardware = in_machines(hardware_of(options.gpu, "--gpu"), cluster.ranks_per_node);
      cluster.operators = {};
      cluster.links = {};
      cluster.compute_beside = cluster.other_beside = 1;
      cluster.launch_seconds = 0;
      cluster.constant_bytes = 0;
      cluster.watts = cluster.price_per_gpu_hour = 0;
      cluster.name += str(" with ", cluster.hardware.name);
    }
  } else if (!options.gpu.empty()) {
    cluster = of_gpus(hardware_of(options.gpu, "--gpu"), kMostOfMachine);
  } else {
    cluster = cluster_here();
  }
  if (options.nodes > 0)
    cluster.nodes = static_cast<int>(options.nodes);
  else if (options.ranks > cluster.ranks() && options.cluster.empty())
    cluster.nodes = static_cast<int>(divide_up(options.ranks, cluster.ranks_per_node));
  if (options.network_gbits > 0) {
    cluster.hardware.nic_bytes_per_second = options.network_gbits * 1e9 / 8 * kAdapterPayload;
    auto links = cluster.links.links();
    std::erase_if(links, [](const LinkTime& link) { return link.domains > 1; });
    cluster.links = LinkTimes(std::move(links));
  }
  return cluster;
}

// With sequences of another length, the tokens of a step and of a micro-batch as near as can be.
std::vector<Setting> settings_of(const PlanOptions& options, int ranks) {
  auto settings = options.settings;
  const auto T = options.sequence_length;
  if (T == 0) return settings;
  const auto now = load_config(options.config, settings, ranks).values;
  const auto set = [&](const char* key, std::int64_t value) {
    settings.push_back({key, std::to_string(value), "--sequence-length"});
  };
  set("train.sequence_length", T);
  set("train.batch_tokens", round_up(now.train.batch_tokens, T));
  set("train.micro_batch",
      std::max<std::int64_t>(now.train.micro_batch * now.train.sequence_length / T, 1));
  set("model.max_positions", std::max(now.model.max_positions, T));
  return settings;
}

std::vector<std::string> notes_of(const Plan& plan) {
  std::vector<std::string> notes;
  const auto& e = plan.estimate;
  const bool on_gpus = plan.cluster.device == Device::Kind::cuda;
  if (on_gpus && !LOCKSTEP_WITH_CUDA)
    notes.emplace_back(
        "this build has no CUDA: what kernels take for themselves (workspaces) is that of a CPU's "
        "in their place");
  if (on_gpus && e.measured_operators == 0 && plan.config.train.attention == Config::Attention::own)
    notes.emplace_back(
        "attention is by the own kernels, as cuDNN's is not for such runs, and has the prices of "
        "cuDNN's: it will take longer");
  if (e.measured_operators == 0)
    notes.push_back(str("nothing was measured: operators have the prices of ",
                        on_gpus ? plan.cluster.hardware.name : plan.cluster.name,
                        "; `lockstep preflight` measures them"));
  else if (e.measured_operators < e.operators)
    notes.push_back(str(e.measured_operators, " of ", e.operators,
                        " operators were measured, the others have prices"));
  if (plan.cluster.links.links().empty() && e.ranks > 1 && e.measured_operators > 0)
    notes.emplace_back("no collective was measured: they have prices");
  if (on_gpus && plan.config.train.offloads())
    notes.emplace_back("how much memory the hosts have is not known");
  if (e.save.write_seconds == 0)
    notes.emplace_back(
        "the cluster does not say how fast it writes (storage_write_bytes_per_second): checkpoints "
        "are taken to be written in time");
  return notes;
}

Plan make_plan(const PlanOptions& options) {
  Plan plan;
  plan.cluster = cluster_of(options);
  const auto ranks = static_cast<int>(options.ranks > 0 ? options.ranks : plan.cluster.ranks());
  const auto config = load_config(options.config, settings_of(options, ranks), ranks).values;
  plan.config = planned_on(plan.cluster, config);
  plan.estimate = estimate(config, plan.cluster);
  const bool is_as_it_ran = options.gpu.empty() && options.network_gbits == 0;
  if (!options.cluster.empty() && is_as_it_ran) {
    const auto residuals = Residuals::read(Residuals::file_beside(options.cluster));
    if (!residuals.runs().empty())
      plan.corrected = residuals.corrected(residual_key(config), plan.estimate.time);
  }
  plan.costs = run_costs(plan.config, plan.cluster, plan.estimate);
  if (!options.check) plan.search = search_layouts(config, plan.cluster, processors_allowed());
  if (options.explain) plan.formulas = explain(plan.config, plan.cluster, plan.estimate);
  plan.notes = notes_of(plan);
  return plan;
}

}  // namespace

int run_plan(const PlanOptions& options) {
  const Plan plan = make_plan(options);
  write_output(options.as_json ? str(plan_json(plan).dump(1), "\n") : plan_text(plan));
  if (options.check) require_room(plan.config, plan.estimate.bytes, plan.estimate.room);
  return 0;
}

}  // namespace lockstep
