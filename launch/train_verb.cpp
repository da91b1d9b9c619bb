#include <chrono>
#include <filesystem>
#include <memory>
#include <set>

#include "checkpoint/directory.h"
#include "core/file.h"
#include "core/integer.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "core/toml.h"
#include "launch/config.h"
#include "launch/device.h"
#include "launch/plan/cluster_file.h"
#include "launch/plan/plan_monitor.h"
#include "launch/ranks.h"
#include "launch/verb.h"
#include "launch/version.h"
#include "train/layout.h"
#include "train/run/trainer.h"

namespace lockstep {
namespace {

struct TrainVerbOptions {
  std::string config;             // TOML file
  std::string run;                // directory of the run; empty: see default_run
  std::string device = "best";    // or "cpu", "cuda"
  std::vector<Setting> settings;  // from --set
  bool allow_dataset_change = false;
  bool extend = false;
  std::optional<std::int64_t> from_step;
  std::optional<StepRange> skip_steps;
  bool allow_tensor_across_nodes = false;
  std::int64_t trace_steps = 0;
  std::int64_t verify_steps = 0;  // from --verify-resume
};

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

void check_threads(const ResolvedConfig& config) {
  if (config.values.train.threads <= most_threads()) return;
  throw ConfigError(str(config.origins.find("train.threads")->second, ": train.threads is ",
                        config.values.train.threads, ", expected at most ", most_threads(),
                        " (4 per CPU core available to this process); 0 means one per core"));
}

// The directory of the run without --run: the run that saved the file, or else runs/ and the name
// of the file.
fs::path default_run(const fs::path& config) {
  const auto directory = fs::absolute(config).parent_path();
  const bool saved =
      config.filename() == "config.toml" && directory_exists(directory / "checkpoints");
  return saved ? directory
               : fs::path("runs") /
                     (config.extension() == ".toml" ? config.stem() : config.filename());
}

std::int64_t ranks_per_host(const Topology& topology) {
  std::set<std::string> hosts;
  for (const auto& place : topology.places)
    hosts.insert(place.host);
  return divide_up(std::ssize(topology.places), std::ssize(hosts));
}

// The state of a run in its directory, before it is loaded.
struct SavedRun {
  std::int64_t step = 0;  // that this start resumes from
  DType automatic;        // precision.compute = "auto"
  std::string why;        // the reason for `automatic`
};

// State of the run as rank 0 finds it. A local directory of a host may have the newest checkpoint,
// whose step is in saved_step.txt.
Json found_run(const fs::path& run, const std::optional<std::int64_t>& from_step,
               const std::optional<StepRange>& skip) {
  constexpr std::int64_t kMostBytes = 100, kMostConfigBytes = 1 << 20;
  Json found;
  const Json about = newest_about({run / "checkpoints"});
  const auto file = run / "saved_step.txt";
  std::int64_t step = about.is_object() ? about.at("step").as_integer() : 0;
  if (path_exists(file))
    step = std::max<std::int64_t>(step, std::atoll(read_text(file, kMostBytes).c_str()));
  if (from_step) {
    const auto amendments = AmendmentFile::read(run / "amendments.json");
    const auto request = rollback_to(*from_step, skip).request;
    const bool is_applied =
        amendments
            ? amendments->unfinished != request && find(amendments->amendments, request) != nullptr
            : about.is_object() && find(amendments_in(about), request) != nullptr;
    if (!is_applied) step = *from_step;
  }
  found.set("step", step);
  if (about.is_object())
    if (const Json* settings = about.find("configuration"))
      if (const Json* type = settings->find("precision.compute")) found.set("compute", *type);
  // Its checkpoints may all be in local directories or in the archive.
  if (const auto config = run / "config.toml"; !about.is_object() && path_exists(config))
    for (const auto& entry :
         parse_toml(read_text(config, kMostConfigBytes), config.string()).entries)
      if (const auto* type = std::get_if<std::string>(&entry.value);
          entry.key == "precision.compute" && type != nullptr)
        found.set("compute", *type);
  return found;
}

// The precision is that of the run's newest checkpoint, else the one that all ranks compute fast.
// Collective.
SavedRun saved_run(const fs::path& directory, const TrainVerbOptions& options, const Device& device,
                   World& launched) {
  Json mine =
      launched.rank() == 0 ? found_run(directory, options.from_step, options.skip_steps) : Json();
  mine.set("fast", str(name(automatic_precision(device))));
  std::vector<Json> said;
  for (const auto& text : launched.exchange(mine.dump()))
    said.push_back(Json::parse(text, "a rank"));
  SavedRun saved{.step = said.front().at("step").as_integer(), .automatic = DType::bf16, .why = {}};
  if (const Json* stored = said.front().find("compute")) {
    saved.why = "as in the run's checkpoint";
    if (stored->as_string() != name(DType::bf16)) saved.automatic = DType::fp32;
    return saved;
  }
  saved.why = "every rank computes bf16 fast";
  for (std::size_t rank = 0; rank < said.size(); ++rank)
    if (said[rank].at("fast").as_string() != name(DType::bf16)) {
      saved.automatic = DType::fp32;
      saved.why = str("rank ", rank, " does not compute bf16 fast");
    }
  return saved;
}

// The phases of a start that resumes from `step`: the current one, and the later ones.
std::vector<RunPhase> phases_from(const ResolvedConfig& config, std::int64_t step) {
  std::vector<RunPhase> phases{{0, config.values}};
  for (const auto& phase : config.phases) {
    if (!phase.restarts) continue;
    if (phase.from_step <= step) phases.clear();
    phases.push_back({phase.from_step, phase.values});
  }
  return phases;
}

int train_on(const TrainVerbOptions& options, World& launched, Clock::time_point began) {
  const auto device = device_of_rank(device_of(options.device), launched);
  const auto directory = options.run.empty() ? default_run(options.config) : fs::path(options.run);
  const auto saved = saved_run(directory, options, device, launched);
  const auto config =
      load_config(options.config, options.settings, launched.size(), saved.automatic);
  check_threads(config);
  if (config.origins.find("precision.compute")->second.ends_with(kAutomatic))
    log_info("precision.compute is auto: ", name(saved.automatic), ", ", saved.why);
  auto phases = phases_from(config, saved.step);
  for (auto& phase : phases)
    if (auto& from = phase.config.train.init_from; path_exists(from))
      from = fs::absolute(from).lexically_normal();
  const Config& now = phases.front().config;
  Fields settings;
  const Json json = to_json(now);
  for (const auto& [key, value] : json.as_object())
    settings.emplace_back(key, value.dump());
  settings.emplace_back("--extend", options.extend ? "given" : "not given");
  settings.emplace_back("--from-step", str(options.from_step.value_or(0)));
  if (options.skip_steps)
    settings.emplace_back("--skip-steps", skip_of(*options.skip_steps).request);
  const auto across =
      options.allow_tensor_across_nodes ? TensorAcross::allowed : TensorAcross::refused;
  const auto ranks =
      place_ranks(launched, settings, mesh_of(now.layout, launched.size()), device, across);
  if (const auto axis = derived_axis_in_words(config, ranks_per_host(ranks.topology));
      !axis.empty())
    log_info(axis);
  const auto watched = watch_ranks(*ranks.world, now.train.stall_seconds, directory);
  World& host = watched ? *watched : *ranks.world;
  return host.ends_all([&] {
    const auto& cluster_file = now.plan.cluster;
    const auto cluster = host.rank() == 0 && !cluster_file.empty()
                             ? std::optional(load_cluster(cluster_file))
                             : std::nullopt;
    const auto train_over = [&](World& world) {
      return train({.config = now,
                    .phase_begin = phases.front().from_step,
                    .later_phases = {phases.begin() + 1, phases.end()},
                    .resolved_config = to_toml(config),
                    .settings = json,
                    .run = directory,
                    .device = device,
                    .make_observer =
                        [&](Run& run) {
                          return std::make_unique<PlanMonitor>(run.host, run.config, run.compute,
                                                               cluster, across);
                        },
                    .allow_dataset_change = options.allow_dataset_change,
                    .extend = options.extend,
                    .from_step = options.from_step,
                    .skip_steps = options.skip_steps,
                    .version = version_and_commit(),
                    .verify_steps = options.verify_steps,
                    .trace_steps = options.trace_steps,
                    .began = began},
                   {.world = world, .topology = &ranks.topology});
    };
    return with_collectives(host, device, train_over);
  });
}

int run_train(const TrainVerbOptions& options) {
  const auto began = Clock::now();
  const auto launched = meet_ranks(device_of(options.device));
  return launched->ends_all([&] { return train_on(options, *launched, began); });
}

}  // namespace

Verb train_verb() {
  auto o = std::make_shared<TrainVerbOptions>();
  const auto sets = [o](const char* key, const char* flag) {
    return [o, key, flag](const std::string& text) {
      o->settings.push_back({key, toml_quoted(text), flag});
    };
  };
  return {
      "train",
      "train a model, or resume a run",
      {{"config", &o->config, "Configuration", "CONFIG.toml",
        "configuration of the run, or a name of `lockstep config --list`", kRequired},
       settings_flag(o->settings),
       {"--run", &o->run, "Run", "DIR",
        "directory of the run (default: the run that saved CONFIG.toml, otherwise runs/ and the "
        "name of CONFIG.toml)"},
       {"--init-from", sets("train.init_from", "--init-from"), "Run", "DIR",
        "start from the weights of a run, a Hugging Face model or an llm.c model"},
       {"--checkpoint-files", sets("checkpoint.files", "--checkpoint-files"), "Run", "rank|node",
        "write one checkpoint file per rank, or per node (sets checkpoint.files)"},
       {"--device", &o->device, "Run", "cpu|cuda", kDeviceHelp},
       {"--allow-dataset-change", &o->allow_dataset_change, "Run", "",
        "resume even if the training data changed"},
       {"--extend", &o->extend, "Run", "",
        "continue a run past its planned end, or accept a jump of the learning rate or another "
        "precision"},
       {"--from-step", &o->from_step, "Run", "STEP",
        "go back to the checkpoint of STEP, once; later checkpoints and metrics are renamed",
        kRule.within(1, 1e9)},
       {"--skip-steps", [o](const std::string& text) { o->skip_steps = StepRange::parse(text); },
        "Run", "FIRST..LAST",
        "skip the samples of steps FIRST to LAST, which must be after the step that the run "
        "resumes from"},
       {"--allow-tensor-across-nodes", &o->allow_tensor_across_nodes, "Run", "",
        "allow tensor-parallel groups to span NVLink domains, which is slow"},
       {"--trace", &o->trace_steps, "Run", "STEPS",
        "write a timeline of all streams for Perfetto, over the first STEPS steps of this start",
        kRule.within(1, 1000)},
       {"--verify-resume", &o->verify_steps, "Run", "STEPS",
        "before resuming, recompute STEPS recorded steps and compare them bit by bit",
        kRule.within(1, 1e6)}},
      [o] { return run_train(*o); }};
}

}  // namespace lockstep
