#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "core/file.h"
#include "core/gpu.h"
#include "core/integer.h"
#include "core/output.h"
#include "core/thread_pool.h"
#include "core/units.h"
#include "launch/device.h"
#include "launch/plan/cluster_file.h"
#include "launch/plan/plan.h"
#include "launch/plan/plan_band.h"
#include "launch/plan/run_plan.h"
#include "launch/verb.h"
#include "train/layout.h"
#include "train/run/batch_split.h"
#include "train/run/memory_budget.h"

namespace lockstep {
namespace {

struct PlanOptions {
  std::string config;                // TOML file
  std::vector<Setting> settings;     // from --set
  std::string cluster;               // file; empty: from `gpu`, or else plan.cluster
  std::string gpu;                   // empty: as in the cluster file
  std::int64_t nodes = 0;            // 0: as in the cluster file
  std::int64_t ranks = 0;            // 0: all ranks of the cluster
  double network_gbits = 0;          // Gbit/s of the NIC of each GPU; 0: as in the cluster file
  double storage_gbytes = 0;         // GB/s per node, read and write; 0: as in the cluster file
  std::int64_t sequence_length = 0;  // 0: as configured
  bool allow_tensor_across_nodes = false;
  bool check = false;  // only check whether the run fits
  bool as_json = false;
  bool explain = false;
};

// Payload share of the rate of a NIC, see core/system/hardware.cpp.
constexpr double kAdapterPayload = 46.0 / 50;

// Number of GPUs of a host, if nothing else tells it.
constexpr int kRanksOfMachine = 8;

Cluster cluster_of_this_machine() {
  const auto here = gpu::devices();
  const auto name = here.count > 0 ? gpu::properties(0).name : "";
  if (const auto found = cluster_here(name, here.count, 1)) return *found;
  throw ConfigError(str(
      "plan: ",
      here.count > 0 ? str("unknown GPU ", name, " and no cluster given")
                     : std::string("no cluster given"),
      "; pass --cluster FILE or set plan.cluster (a file of configs/clusters, or the cluster.json "
      "of `lockstep preflight`), or pass --gpu NAME, such as --gpu H100"));
}

// Fills in plan.cluster if no option names a cluster.
PlanOptions with_machines(PlanOptions options, const Config& config) {
  if (!options.cluster.empty() || !options.gpu.empty()) return options;
  options.cluster = config.plan.cluster;
  if (!options.cluster.empty() && !path_exists(options.cluster))
    throw ConfigError(str("plan.cluster: file not found: ", options.cluster,
                          "; write it with `lockstep preflight --cluster-out`, or name another "
                          "cluster by --cluster or --gpu"));
  return options;
}

// Replaces the GPUs of a cluster. Measurements and price of the old GPU are dropped; the NICs of
// the hosts stay.
Cluster with_gpu(Cluster cluster, const std::string& gpu) {
  if (cluster.device == Device::Kind::cpu)
    throw ConfigError(str("--gpu: ", cluster.name, " has no GPUs"));
  const double nic = cluster.hardware.nic_bytes_per_second;
  cluster.hardware = in_machines_of(cluster.ranks_per_node, hardware_of(gpu, "--gpu"));
  if (nic > 0) cluster.hardware.nic_bytes_per_second = nic;
  cluster.operators = {};
  cluster.links = {};
  cluster.compute_beside = 0;
  cluster.other_beside = 1;
  cluster.wait_share = cluster.launch_seconds = 0;
  cluster.constant_bytes = 0;
  cluster.watts = cluster.price_per_gpu_hour = 0;
  cluster.name += str(" with ", cluster.hardware.name);
  return cluster;
}

Cluster cluster_of(const PlanOptions& options) {
  Cluster cluster;
  if (!options.cluster.empty()) {
    cluster = load_cluster(options.cluster);
    if (!options.gpu.empty()) cluster = with_gpu(std::move(cluster), options.gpu);
  } else if (!options.gpu.empty()) {
    cluster = cluster_of_gpus(hardware_of(options.gpu, "--gpu"), kRanksOfMachine);
  } else {
    cluster = cluster_of_this_machine();
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
  if (options.storage_gbytes > 0)
    cluster.storage_read_bytes_per_second = cluster.storage_write_bytes_per_second =
        options.storage_gbytes * 1e9;
  try {
    check(cluster);
  } catch (const DataError& error) {
    throw ConfigError(
        str(cluster.name, ": ", error.what(), "; set it in the cluster file, or pass --network"));
  }
  return cluster;
}

int ranks_of(const PlanOptions& options, const Cluster& cluster) {
  const auto ranks = options.ranks > 0 ? options.ranks : cluster.ranks();
  if (ranks > kMostPlannedRanks)
    throw ConfigError(str("plan: expected at most ", with_commas(kMostPlannedRanks),
                          " ranks, found ", with_commas(ranks), "; reduce --ranks or --nodes"));
  return static_cast<int>(ranks);
}

// Settings with the sequence length changed; tokens per step and per micro-batch stay as close as
// possible.
std::vector<Setting> settings_of(const PlanOptions& options, const Config& now) {
  auto settings = options.settings;
  const auto T = options.sequence_length;
  if (T == 0) return settings;
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

// Notes about options that the plan could not follow exactly.
std::vector<std::string> notes_of_wishes(const Plan& plan, const Config& asked,
                                         const PlanOptions& options) {
  std::vector<std::string> notes;
  const auto& model = plan.config.model;
  if (model.max_positions > asked.model.max_positions) {
    const auto more = parameter_count(model) - parameter_count(asked.model);
    notes.push_back(str(
        "model.max_positions is ", with_commas(asked.model.max_positions),
        ", but train needs at least ", with_commas(model.max_positions),
        more == 0 ? ""
                  : str(", which adds ", human_count(static_cast<double>(more)), " parameters")));
  }
  const auto& cluster = plan.cluster;
  if (const auto threads = static_cast<int>(asked.train.threads);
      threads > 0 && is_of_other_threads(cluster, threads))
    notes.push_back(str("train.threads is ", threads, ", but the cluster was measured with ",
                        cluster.threads, cluster.threads == 1 ? " thread" : " threads",
                        " per rank, which this plan uses; measure again with ",
                        "lockstep preflight --threads ", threads));
  const auto nodes = plan.estimate.save.nodes;
  if (options.nodes > nodes)
    notes.push_back(str(with_commas(plan.estimate.ranks), " ranks (--ranks) use ",
                        with_commas(nodes), " of ", with_commas(options.nodes),
                        " nodes (--nodes); the other nodes are idle"));
  return notes;
}

std::vector<std::string> notes_of(const Plan& plan) {
  std::vector<std::string> notes;
  const auto& e = plan.estimate;
  if (auto masked = masked_in_words(plan.config); !masked.empty()) notes.push_back(masked);
  const bool on_gpus = plan.cluster.device == Device::Kind::cuda;
  if (on_gpus && !LOCKSTEP_WITH_CUDA)
    notes.emplace_back(
        "this build has no CUDA: kernel workspaces are counted with the sizes of the CPU kernels");
  if (on_gpus && e.operators.measured == 0 && plan.config.train.attention == Config::Attention::own)
    notes.emplace_back(
        "attention uses Lockstep's own kernels, because of train.attention or because cuDNN does "
        "not support this run; their time is estimated as that of FlashAttention-2 over whole "
        "sequences");
  if (e.operators.measured == 0)
    notes.push_back(str("no operator was measured: operator times are estimated from the rates of ",
                        on_gpus ? plan.cluster.hardware.name : plan.cluster.name,
                        "; run `lockstep preflight` to measure them"));
  else if (e.operators.measured < e.operators.kinds)
    notes.push_back(str(e.operators.measured, " of ", e.operators.kinds,
                        " operators were measured, the others are estimated"));
  if (const auto& c = e.collectives; e.operators.measured > 0 && c.measured < c.kinds)
    notes.push_back(c.measured == 0
                        ? std::string("no collective was measured: their times are estimated")
                        : str(c.measured, " of ", c.kinds,
                              " collectives were measured between this number of hosts; the others "
                              "are estimated"));
  if (on_gpus && !plan_band(plan.cluster, e.ranks).band.is_known())
    notes.push_back(str("times have no range, because no published run has the GPU ",
                        plan.cluster.hardware.name));
  if (on_gpus && plan.cluster.host_memory_bytes == 0)
    notes.emplace_back(
        "the cluster file does not set host_memory_bytes: host memory is assumed to be sufficient");
  if (e.save.interval_seconds > plan.costs.interruption_seconds)
    notes.push_back(str("checkpoints are saved every ", human_eta(e.save.interval_seconds),
                        ", but interruptions occur every ",
                        human_eta(plan.costs.interruption_seconds),
                        "; much time is lost; lower checkpoint.every_steps"));
  if (plan.corrected && plan.search)
    notes.emplace_back("the other layouts are compared without correction by earlier runs");
  if (e.save.write_seconds == 0)
    notes.emplace_back(
        "the cluster file does not set storage_write_bytes_per_second (--storage): checkpoints are "
        "assumed not to delay training");
  return notes;
}

// A layout that is impossible.
struct WrongLayout {
  std::string why;  // empty: the layout is possible
  std::string remedy;
};

WrongLayout wrong_with(const Config& config, const Cluster& cluster) {
  const auto& l = config.layout;
  try {
    require_divisible(config.model, l.tensor);
  } catch (const ConfigError& error) {
    return {error.what(), ""};
  }
  const auto product = l.replicate * l.shard * l.tensor;
  if (product == l.ranks) return {};
  const auto nodes = divide_up(product, cluster.ranks_per_node);
  const bool is_whole = product % cluster.ranks_per_node == 0, is_more = product > cluster.ranks();
  return {str("layout.replicate x layout.shard x layout.tensor is ", l.replicate, " x ", l.shard,
              " x ", l.tensor, " = ", product, ", but there are ", l.ranks, " ranks"),
          str("; pass", is_more ? str(" --nodes ", nodes) : "",
              is_more && is_whole ? "" : str(" --ranks ", product),
              l.ranks % (l.replicate * l.tensor) == 0
                  ? ", or omit layout.shard, which then uses the remaining ranks"
                  : "")};
}

// Replaces the layout of `config` and of the plan by the fastest layout.
void take_fastest(Plan& plan, const WrongLayout& wrong, Config& config) {
  if (!plan.search) throw ConfigError(wrong.why + wrong.remedy);
  if (plan.search->best.empty())
    throw ConfigError(
        str(wrong.why, ", and no layout of these ranks fits", nothing_fits(*plan.search)));
  const auto& fastest = plan.search->best.front();
  plan.estimate = fastest.estimate;
  plan.notes.push_back(str(wrong.why, ": this plan shows the fastest layout instead"));
  config.layout = fastest.config.layout;
  config.train.micro_batch = fastest.config.train.micro_batch;
  config.train.recompute = fastest.config.train.recompute;
  config.train.offload_optimizer = fastest.config.train.offload_optimizer;
  config.train.offload_activations = fastest.config.train.offload_activations;
}

// The phases of a run that has several, on the layout of the plan.
std::vector<PlannedPhase> planned_phases(const Plan& plan, const ResolvedConfig& resolved,
                                         TensorAcross across) {
  std::vector<PlannedPhase> phases{{1, plan.config.train.steps, plan.config, plan.estimate}};
  for (const auto& phase : resolved.phases) {
    if (!phase.restarts) continue;
    Config config = phase.values;
    config.layout = plan.config.layout;
    phases.back().last_step = phase.from_step;
    phases.push_back({phase.from_step + 1, config.train.steps, planned_on(plan.cluster, config),
                      estimate(config, plan.cluster, across)});
  }
  if (phases.size() == 1) phases.clear();
  return phases;
}

Plan make_plan(const PlanOptions& given) {
  const auto asked = load_config(given.config, given.settings).values;
  const auto options = with_machines(given, asked);
  Plan plan;
  plan.cluster = cluster_of(options);
  const int ranks = ranks_of(options, plan.cluster);
  const auto automatic =
      plan.cluster.device == Device::Kind::cuda ? DType::bf16 : automatic_precision({});
  const auto resolved = load_config(options.config, settings_of(options, asked), ranks, automatic);
  auto config = resolved.values;
  const auto wrong = wrong_with(config, plan.cluster);
  const auto across =
      options.allow_tensor_across_nodes ? TensorAcross::allowed : TensorAcross::refused;
  if (wrong.why.empty()) plan.estimate = estimate(config, plan.cluster, across);
  if (!options.check) plan.search = search_layouts(config, plan.cluster, processors_allowed());
  if (!wrong.why.empty()) take_fastest(plan, wrong, config);
  plan.config = planned_on(plan.cluster, config);
  const bool is_as_it_ran =
      options.gpu.empty() && options.network_gbits == 0 && options.storage_gbytes == 0;
  if (!options.cluster.empty() && is_as_it_ran) {
    const auto earlier = earlier_runs(PlanErrors::file_beside(options.cluster));
    if (const auto time = earlier.corrected(plan_error_key(config), plan.estimate.time))
      plan.corrected = corrected(plan.estimate, plan.config, plan.cluster, *time);
    else if (!earlier.runs().empty())
      plan.notes.emplace_back("no earlier run on this cluster resembles this run");
  }
  plan.phases = planned_phases(plan, resolved, across);
  std::optional<double> of_phases;
  for (const auto& phase : plan.phases)
    of_phases = of_phases.value_or(0) + phase.seconds();
  plan.costs = run_costs(plan.config, plan.cluster, plan.estimate, of_phases);
  if (plan.corrected) {
    auto seconds = of_phases;  // no earlier run tells about the later phases
    if (seconds) *seconds *= plan.corrected->time.total() / plan.estimate.time.total();
    plan.corrected_costs = run_costs(plan.config, plan.cluster, *plan.corrected, seconds);
  }
  if (options.explain) {
    plan.calls = step_calls(plan.cluster, plan.config, across);
    for (const auto& calls : plan.calls)
      if (calls.longest) plan.formulas.push_back(*calls.longest);
    std::ranges::move(explain(plan.config, plan.cluster, plan.estimate, of_phases),
                      std::back_inserter(plan.formulas));
  }
  if (const auto axis = derived_axis_in_words(resolved, plan.cluster.ranks_per_node);
      wrong.why.empty() && !axis.empty())
    plan.notes.push_back(axis);
  std::ranges::move(notes_of_wishes(plan, asked, options), std::back_inserter(plan.notes));
  std::ranges::move(notes_of(plan), std::back_inserter(plan.notes));
  return plan;
}

// Prints the plan to standard output. Throws ConfigError if the cluster cannot hold the layout, or
// with --check if memory is insufficient.
int run_plan(const PlanOptions& options) {
  const Plan plan = make_plan(options);
  write_output(options.as_json ? str(plan_json(plan).dump(1), "\n") : plan_text(plan));
  if (options.check) require_room(plan.config, plan.estimate.bytes, plan.estimate.room);
  return 0;
}

}  // namespace

Verb plan_verb() {
  auto o = std::make_shared<PlanOptions>();
  constexpr double kMost = kMostPlannedRanks;
  return {
      "plan",
      "predict memory, speed and cost of a run, and find faster layouts",
      {{"config", &o->config, "Configuration", "CONFIG.toml", "configuration of the run",
        kRequired},
       settings_flag(o->settings),
       {"--sequence-length", &o->sequence_length, "Configuration", "TOKENS",
        "override the sequence length (tokens per step unchanged)", kRule.within(1, 1 << 30)},
       {"--cluster", &o->cluster, "Cluster", "FILE",
        "cluster file: one of configs/clusters, or the cluster.json of preflight (default: "
        "plan.cluster of the configuration, otherwise the GPUs of this host)"},
       {"--gpu", &o->gpu, "Cluster", "NAME",
        str("GPU of each host, in place of --cluster's; without --cluster, 8 per host. One of: ",
            known_gpus())},
       {"--nodes", &o->nodes, "Cluster", "N", "override the number of nodes",
        kRule.within(1, kMost)},
       {"--ranks", &o->ranks, "Cluster", "N",
        "number of ranks of the run (default: all ranks of the cluster)", kRule.within(1, kMost)},
       {"--network", &o->network_gbits, "Cluster", "GBIT/S",
        "override the bandwidth of the NIC of each GPU", kRule.within(1e-3, 1e6)},
       {"--storage", &o->storage_gbytes, "Cluster", "GB/S",
        "override the storage bandwidth per node, for reads and writes, with all nodes active",
        kRule.within(1e-3, 1e6)},
       {"--allow-tensor-across-nodes", &o->allow_tensor_across_nodes, "Cluster", "",
        "allow tensor-parallel groups to span NVLink domains, as in `lockstep train`"},
       {"--check", &o->check, "Output", "",
        "skip the search for other layouts, and exit with 78 if memory is insufficient"},
       {"--json", &o->as_json, "Output", "", "print one JSON object (docs/formats.md)"},
       {"--explain", &o->explain, "Output", "",
        "print the time of each call of a step, and each formula with its inputs"}},
      [o] { return run_plan(*o); }};
}

}  // namespace lockstep
