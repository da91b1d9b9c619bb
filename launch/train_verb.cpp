#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <tuple>

#include "checkpoint/directory.h"
#include "core/file.h"
#include "core/integer.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "core/toml.h"
#include "dist/job/agent_socket.h"
#include "launch/config.h"
#include "launch/device.h"
#include "launch/plan/cluster_file.h"
#include "launch/plan/plan_monitor.h"
#include "launch/ranks.h"
#include "launch/verb.h"
#include "launch/version.h"
#include "train/layout.h"
#include "train/run/signals.h"
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
  std::int64_t step = 0;           // that this start resumes from
  Amendments changes{};            // live changes
  std::string unfinished{};        // the live request that is under way; "": none
  std::optional<Rollback> back{};  // that this start carries out, unless an earlier one has
  DType automatic = DType::bf16;   // precision.compute = "auto"
  std::string why{};               // the reason for `automatic`
};

// State of the run as rank 0 finds it. A local directory of a host may have the newest checkpoint,
// whose step is in saved_step.txt.
//   back: the rollback of the flags
Json found_run(const fs::path& run, std::optional<Rollback> back) {
  constexpr std::int64_t kMostBytes = 100, kMostConfigBytes = 1 << 20;
  Json found;
  const Json about = newest_about({run / "checkpoints"});
  const auto file = run / "saved_step.txt";
  std::int64_t step = about.is_object() ? about.at("step").as_integer() : 0;
  if (path_exists(file))
    step = std::max<std::int64_t>(step, std::atoll(read_text(file, kMostBytes).c_str()));
  auto recorded = AmendmentFile::read(run / "amendments.json").value_or(AmendmentFile{});
  if (!path_exists(run / "amendments.json") && about.is_object())
    recorded.amendments = amendments_in(about);
  if (const auto live = Rollback::parse(recorded.unfinished)) back = live;
  if (back && (recorded.unfinished == back->request() ||
               find(recorded.amendments, back->request()) == nullptr))
    step = back->step;
  found.set("step", step);
  found.set("changes", to_json(changes_of(recorded.amendments)));
  found.set("unfinished",
            request_number(recorded.unfinished) > 0 ? recorded.unfinished : std::string());
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

std::optional<Rollback> rollback_of(const TrainVerbOptions& options) {
  if (!options.from_step) return std::nullopt;
  return Rollback{*options.from_step, options.skip_steps};
}

// The precision is that of the run's newest checkpoint, else the one that all ranks compute fast.
// Collective.
SavedRun saved_run(const fs::path& directory, const TrainVerbOptions& options, const Device& device,
                   World& launched) {
  Json mine = launched.rank() == 0 ? found_run(directory, rollback_of(options)) : Json();
  mine.set("fast", str(name(automatic_precision(device))));
  std::vector<Json> said;
  for (const auto& text : launched.exchange(mine.dump()))
    said.push_back(Json::parse(text, "a rank"));
  Json about;  // as in a checkpoint
  about.set("amendments", said.front().at("changes"));
  SavedRun saved{.step = said.front().at("step").as_integer(),
                 .changes = amendments_in(about),
                 .unfinished = said.front().at("unfinished").as_string()};
  saved.back = Rollback::parse(saved.unfinished);
  if (!saved.back) saved.back = rollback_of(options);
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

// Whether a phase needs other processes: its ranks are placed differently, or watched differently.
bool needs_other_processes(const Config& before, const Config& now) {
  const auto mesh = [](const Config& c) {
    return std::tuple(c.layout.replicate, c.layout.shard, c.layout.tensor, c.train.stall_seconds,
                      c.plan.cluster);
  };
  return mesh(before) != mesh(now);
}

// A run on these ranks, in this process.
class RunHere {
 public:
  RunHere(const TrainVerbOptions& options, World& launched, Clock::time_point began)
      : options_(options),
        began_(began),
        device_(device_of_rank(device_of(options.device), launched)),
        directory_(options.run.empty() ? default_run(options.config) : fs::path(options.run)),
        saved_(saved_run(directory_, options_, device_, launched)),
        automatic_(saved_.automatic),
        ranks_(launched.size()),
        text_(read_config(options.config, options.settings)) {
    resolve();
  }

  int train_on(World& launched);

 private:
  // The text stays that of the process's start: an edit of the file changes no live run.
  ResolvedConfig resolved(const Amendments& changes) const {
    return resolve_config(text_.text, text_.name, text_.settings, ranks_, automatic_, changes);
  }
  void resolve() {
    config_ = resolved(saved_.changes);
    check_threads(config_);
    phases_ = phases_from(config_, saved_.step);
    for (auto& phase : phases_)
      if (auto& from = phase.config.train.init_from; path_exists(from))
        from = fs::absolute(from).lexically_normal();
  }
  Fields settings() const;
  int train_over(World& world, const Topology& topology, TensorAcross across);
  int train_once(World& world, const Topology& topology, TensorAcross across, bool continues);

  const TrainVerbOptions& options_;
  Clock::time_point began_;
  const Device device_;
  const fs::path directory_;
  SavedRun saved_;
  const DType automatic_;
  const int ranks_;
  const ConfigText text_;
  ResolvedConfig config_;
  std::vector<RunPhase> phases_;  // the current one, and the later ones
  std::optional<Cluster> cluster_;
};

// The settings that all ranks must have.
Fields RunHere::settings() const {
  Fields settings;
  const Json json = to_json(phases_.front().config);
  for (const auto& [key, value] : json.as_object())
    settings.emplace_back(key, value.dump());
  settings.emplace_back("--extend", options_.extend ? "given" : "not given");
  settings.emplace_back("--from-step", str(options_.from_step.value_or(0)));
  if (options_.skip_steps)
    settings.emplace_back("--skip-steps", skip_of(*options_.skip_steps).request);
  return settings;
}

int RunHere::train_on(World& launched) {
  if (config_.origins.find("precision.compute")->second.ends_with(kAutomatic))
    log_info("precision.compute is auto: ", name(automatic_), ", ", saved_.why);
  const Config& now = phases_.front().config;
  const auto across =
      options_.allow_tensor_across_nodes ? TensorAcross::allowed : TensorAcross::refused;
  const auto ranks =
      place_ranks(launched, settings(), mesh_of(now.layout, launched.size()), device_, across);
  if (const auto axis = derived_axis_in_words(config_, ranks_per_host(ranks.topology));
      !axis.empty())
    log_info(axis);
  const auto watched = watch_ranks(*ranks.world, now.train.stall_seconds, directory_);
  World& host = watched ? *watched : *ranks.world;
  return host.ends_all([&] {
    const auto& cluster_file = now.plan.cluster;
    if (host.rank() == 0 && !cluster_file.empty()) cluster_ = load_cluster(cluster_file);
    return with_collectives(
        host, device_, [&](World& world) { return train_over(world, ranks.topology, across); });
  });
}

// Trains until the run ends. A phase or a live request that changes the run lets it begin again, in
// this process, from its newest checkpoint.
int RunHere::train_over(World& world, const Topology& topology, TensorAcross across) {
  const StopSignals signals(world.rank() == 0);  // none is lost in between
  for (bool continues = false;; continues = true) {
    const int code = train_once(world, topology, across, continues);
    if (code != kTrainAgain) return code;
    const Config before = phases_.front().config;
    began_ = Clock::now();
    saved_ = saved_run(directory_, options_, device_, world);
    resolve();
    if (!needs_other_processes(before, phases_.front().config)) continue;
    constexpr const char* kWhy = "the next phase needs other processes, because its layout differs";
    log_info(kWhy, place_from_agent() ? "" : "; rerun the same command to continue");
    report_to_agent({.error = kWhy});  // it restarts them
    return TransientError("").exit_code();
  }
}

int RunHere::train_once(World& world, const Topology& topology, TensorAcross across,
                        bool continues) {
  const auto& back = saved_.back;
  return train(
      {.config = phases_.front().config,
       .phase_begin = phases_.front().from_step,
       .later_phases = {phases_.begin() + 1, phases_.end()},
       .resolved_config = to_toml(config_),
       .settings = to_json(phases_.front().config),
       .run = directory_,
       .device = device_,
       .make_observer =
           [&](Run& run) {
             return std::make_unique<PlanMonitor>(run.host, run.config, run.compute, cluster_,
                                                  across);
           },
       .allow_dataset_change = options_.allow_dataset_change,
       .extend = options_.extend,
       .from_step = back ? std::optional(back->step) : std::nullopt,
       .skip_steps = back ? back->skip : options_.skip_steps,
       .request = back ? back->number : 0,
       .changes = saved_.changes,
       .unfinished = saved_.unfinished,
       .continues = continues,
       .resolve = [this](const Amendments& changes) { return phases_from(resolved(changes), 0); },
       .version = version_and_commit(),
       .verify_steps = continues ? 0 : options_.verify_steps,
       .trace_steps = continues ? 0 : options_.trace_steps,
       .began = began_},
      {.world = world, .topology = &topology});
}

int run_train(const TrainVerbOptions& options) {
  const auto began = Clock::now();
  const auto launched = meet_ranks(device_of(options.device));
  return launched->ends_all([&] { return RunHere(options, *launched, began).train_on(*launched); });
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
