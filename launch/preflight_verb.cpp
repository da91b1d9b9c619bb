#include "launch/preflight_verb.h"

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "core/file.h"
#include "core/system/machine.h"
#include "core/thread_pool.h"
#include "dist/nccl_world.h"
#include "launch/device.h"
#include "launch/plan/cluster_file.h"
#include "launch/preflight/preflight.h"
#include "launch/preflight/report.h"
#include "launch/ranks.h"
#include "launch/verb.h"
#include "train/layout.h"
#include "train/run/run_config.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStallSeconds = 120;  // slow disks are to be named, not to end all

fs::path baseline_file(const PreflightVerbOptions& options) {
  if (!options.baseline.empty()) return options.baseline;
  return fs::path(options.cluster_out).parent_path() / "preflight.json";
}

std::vector<std::vector<Finding>> findings_of_ranks(World& world, std::span<const Finding> mine) {
  Json said = Json::Array{};
  for (const Finding& one : mine)
    said.push(to_json(one));
  std::vector<std::vector<Finding>> by_rank;
  for (const auto& text : world.exchange(said.dump())) {
    auto& findings = by_rank.emplace_back();
    const Json heard = Json::parse(text, "what a rank found");
    for (const Json& one : heard.as_array())
      findings.push_back(finding(one));
  }
  return by_rank;
}

// What is wrong with it here, or nothing.
std::string wrong_with(const fs::path& scratch) {
  if (!directory_exists(scratch)) return "no such folder";
  try {
    const WriteFile probe(scratch / str("preflight-", host_name()));
    return "";
  } catch (const DataError&) {
    return "no file can be written there";
  }
}

// Before all is measured: on every host.
void check_scratch(const std::string& scratch, World& world, const Topology& topology) {
  std::map<std::string, std::vector<int>> ranks;  // that say so
  const auto said = world.exchange(wrong_with(scratch));
  for (std::size_t rank = 0; rank < said.size(); ++rank)
    if (!said[rank].empty()) ranks[said[rank]].push_back(static_cast<int>(rank));
  if (ranks.empty()) return;
  const auto& [wrong, on] = *ranks.begin();
  throw ConfigError(str("--scratch ", scratch, ": ", wrong, " on ", hosts_in_words(topology, on)));
}

// That it is not there yet, or cannot be read any more, is no fault where this will write it.
std::optional<Cluster> read_named(const std::string& file, const std::string& to_be_written) {
  if (file.empty()) return std::nullopt;
  const bool is_to_be_written = fs::weakly_canonical(file) == fs::weakly_canonical(to_be_written);
  try {
    return load_cluster(file);
  } catch (const Error&) {
    if (!is_to_be_written) throw;
    return std::nullopt;  // PreflightReport says so
  }
}

// What plan.cluster names, as the first rank reads it.
std::optional<Cluster> named_cluster(const std::string& file, const std::string& to_be_written,
                                     World& world) {
  Json mine;
  if (world.rank() == 0)
    if (auto cluster = read_named(file, to_be_written)) {
      cluster->operators = {};  // large, and no limits
      cluster->links = {};
      mine = Json::Array{cluster->is_measured, to_json(*cluster)};
    }
  const auto said = Json::parse(world.exchange(mine.dump()).front(), file);
  if (said.is_null()) return std::nullopt;
  Cluster cluster = parse_cluster(said.as_array()[1]);
  cluster.is_measured = said.as_array()[0].as_bool();
  return cluster;
}

int preflight_on(const PreflightVerbOptions& options, World& launched) {
  std::optional<ResolvedConfig> config;
  Fields settings;
  if (!options.config.empty()) {
    config = load_config(options.config, options.settings, launched.size());
    const Json json = to_json(*config);
    for (const auto& [key, value] : json.as_object())
      settings.emplace_back(key, value.dump());
  }
  const auto device = device_of_rank(device_of(options.device), launched);
  const auto mesh =
      config ? mesh_of(config->values.layout, launched.size()) : Mesh{.shard = launched.size()};
  const auto placed = place_ranks(launched, settings, mesh, device, TensorAcross::allowed);
  const auto watched = watch_ranks(*placed.world, kStallSeconds);
  World& host = watched ? *watched : *placed.world;
  return host.ends_all([&] {
    // Who ends the ranks by a signal, as mpirun where one died, ends all others: the watch sees
    // that, and ends this one when it has said what was found.
    if (watched && host.rank() == 0) std::signal(SIGTERM, SIG_IGN);
    std::optional<PreflightReport> report;
    if (host.rank() == 0)
      report.emplace(host, placed.topology,
                     PreflightReport::Files{options.cluster_out, baseline_file(options)});
    check_scratch(options.scratch, host, placed.topology);
    const auto cluster =
        named_cluster(config ? config->values.plan.cluster : "", options.cluster_out, host);
    const bool by_nccl = device.kind == Device::Kind::cuda && host.size() > 1;
    const auto nccl = by_nccl ? make_nccl_world(host, device) : nullptr;
    World& world = nccl ? *nccl : host;
    const int threads = options.threads > 0 ? options.threads
                        : config            ? threads_of(config->values)
                                            : processors_allowed();
    const auto found = preflight({.config = config ? &config->values : nullptr,
                                  .cluster = cluster ? &*cluster : nullptr,
                                  .mesh = mesh,
                                  .device = device,
                                  .threads = threads,
                                  .scratch = options.scratch},
                                 world, placed.topology, [&](const auto& findings) {
                                   auto by_rank = findings_of_ranks(world, findings);
                                   if (report) report->hear(std::move(by_rank));
                                 });
    const int code = report ? report->conclude(found.cluster, cluster ? &*cluster : nullptr) : 0;
    return std::stoi(world.exchange(std::to_string(code)).front());
  });
}

}  // namespace

int run_preflight(const PreflightVerbOptions& options) {
  if (options.config.empty() && !options.settings.empty())
    throw UsageError("--set: expected CONFIG.toml, whose keys it sets");
  const auto launched = meet_ranks(device_of(options.device));
  return launched->ends_all([&] { return preflight_on(options, *launched); });
}

Verb preflight_verb() {
  auto o = std::make_shared<PreflightVerbOptions>();
  return {"preflight",
          "measure the machines of a run, and name those that are ill or slow",
          {{"config", &o->config, "Configuration", "CONFIG.toml",
            "a run's configuration: its products, layout and steps (default: none of a model)"},
           settings_flag(o->settings),
           {"--cluster-out", &o->cluster_out, "Output", "FILE",
            "write what plans are calibrated on, where nothing is wrong", kWithDefault},
           {"--baseline", &o->baseline, "Output", "FILE",
            "compare with it, and keep there what was found (default: preflight.json beside "
            "--cluster-out)"},
           {"--scratch", &o->scratch, "Machine", "DIR", "a folder, where storage is measured",
            kWithDefault},
           {"--device", &o->device, "Machine", "cpu|cuda", kDeviceHelp},
           threads_flag(o->threads)},
          [o] { return run_preflight(*o); }};
}

}  // namespace lockstep
