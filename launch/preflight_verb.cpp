#include "launch/preflight_verb.h"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "core/file.h"
#include "core/system/machine.h"
#include "core/thread_pool.h"
#include "launch/device.h"
#include "launch/plan/cluster_file.h"
#include "launch/preflight/preflight.h"
#include "launch/preflight/report.h"
#include "launch/preflight/report_file.h"
#include "launch/ranks.h"
#include "launch/verb.h"
#include "launch/version.h"
#include "train/layout.h"
#include "train/run/run_config.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStallSeconds = 120;  // a slow disk is reported, and does not abort the job

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

// The problem with the scratch directory on this host, or "".
std::string wrong_with(const fs::path& scratch) {
  if (!directory_exists(scratch)) return "no such directory";
  try {
    const WriteFile probe(scratch / str("preflight-", host_name()));
    return "";
  } catch (const DataError&) {
    return "the directory is not writable";
  }
}

// Runs on every host before the measurements.
void check_scratch(const std::string& scratch, World& world, const Topology& topology) {
  std::map<std::string, std::vector<int>> ranks;  // by problem
  const auto said = world.exchange(wrong_with(scratch));
  for (std::size_t rank = 0; rank < said.size(); ++rank)
    if (!said[rank].empty()) ranks[said[rank]].push_back(static_cast<int>(rank));
  if (ranks.empty()) return;
  const auto& [wrong, on] = *ranks.begin();
  throw ConfigError(str("--scratch ", scratch, ": ", wrong, " on ", hosts_in_words(topology, on)));
}

// Reads the cluster file. A missing or unreadable file is no error if this preflight writes it.
std::optional<Cluster> read_named(const std::string& file, const std::string& to_be_written) {
  if (file.empty()) return std::nullopt;
  const bool is_to_be_written = fs::weakly_canonical(file) == fs::weakly_canonical(to_be_written);
  try {
    return load_cluster(file);
  } catch (const Error&) {
    if (!is_to_be_written) throw;
    return std::nullopt;  // PreflightReport warns about it
  }
}

// The cluster of plan.cluster, as read by rank 0.
std::optional<Cluster> named_cluster(const std::string& file, const std::string& to_be_written,
                                     World& world) {
  Json mine;
  if (world.rank() == 0)
    if (auto cluster = read_named(file, to_be_written)) {
      cluster->operators = {};  // large, and not used as limits
      cluster->links = {};
      mine = Json::Array{cluster->is_measured, to_json(*cluster)};
    }
  const auto said = Json::parse(world.exchange(mine.dump()).front(), file);
  if (said.is_null()) return std::nullopt;
  Cluster cluster = parse_cluster(said.as_array()[1]);
  cluster.is_measured = said.as_array()[0].as_bool();
  return cluster;
}

// report: at rank 0
int measure(const PreflightVerbOptions& options, const std::optional<ResolvedConfig>& config,
            World& host, const Topology& topology, const Mesh& mesh, Device device,
            PreflightReport* report) {
  check_scratch(options.scratch, host, topology);
  const auto cluster =
      named_cluster(config ? config->values.plan.cluster : "", options.cluster_out, host);
  return with_collectives(host, device, [&](World& world) {
    const int threads = options.threads > 0 ? options.threads
                        : config            ? threads_of(config->values)
                                            : processors_allowed();
    const auto found = preflight({.config = config ? &config->values : nullptr,
                                  .cluster = cluster ? &*cluster : nullptr,
                                  .mesh = mesh,
                                  .device = device,
                                  .threads = threads,
                                  .scratch = options.scratch},
                                 world, topology, [&](const auto& findings) {
                                   auto by_rank = findings_of_ranks(world, findings);
                                   if (report != nullptr) report->hear(std::move(by_rank));
                                 });
    const int code =
        report != nullptr ? report->conclude(found.cluster, cluster ? &*cluster : nullptr) : 0;
    return std::stoi(world.exchange(std::to_string(code)).front());
  });
}

int quick_preflight_on(const PreflightVerbOptions& options, World& launched) {
  const auto device = device_of_rank(device_of(options.device), launched);
  const Mesh mesh{.shard = launched.size()};
  const auto placed = place_ranks(launched, {}, mesh, device, TensorAcross::allowed);
  const auto watched = watch_ranks(*placed.world, kStallSeconds);
  World& host = watched ? *watched : *placed.world;
  return host.ends_all([&] {
    return with_collectives(host, device, [&](World& world) {
      const auto faults =
          quick_preflight({.mesh = mesh,
                           .device = device,
                           .threads = options.threads > 0 ? options.threads : processors_allowed()},
                          world, placed.topology);
      if (!faults.empty()) throw TransientError(faults);
      return 0;
    });
  });
}

int preflight_on(const PreflightVerbOptions& options, World& launched, ReportFile& file) {
  const auto device = device_of_rank(device_of(options.device), launched);
  std::optional<ResolvedConfig> config;
  Fields settings;
  if (!options.config.empty()) {
    config =
        load_config(options.config, options.settings, launched.size(), automatic_precision(device));
    const Json json = to_json(config->values);
    for (const auto& [key, value] : json.as_object())
      settings.emplace_back(key, value.dump());
  }
  const auto mesh =
      config ? mesh_of(config->values.layout, launched.size()) : Mesh{.shard = launched.size()};
  const auto placed = place_ranks(launched, settings, mesh, device, TensorAcross::allowed);
  const auto watched = watch_ranks(*placed.world, kStallSeconds);
  World& host = watched ? *watched : *placed.world;
  file.place(placed.topology);
  return host.ends_all([&] {
    std::optional<PreflightReport> report;
    try {
      if (host.rank() == 0)
        report.emplace(host, placed.topology,
                       PreflightReport::Files{options.cluster_out, baseline_file(options)}, file);
      return measure(options, config, host, placed.topology, mesh, device,
                     report ? &*report : nullptr);
    } catch (const std::exception& error) {
      if (report) report->fail(error);
      if (host.rank() == 0) file.fail(error);
      throw;
    }
  });
}

}  // namespace

int run_preflight(const PreflightVerbOptions& options) {
  if (options.config.empty() && !options.settings.empty())
    throw UsageError("--set: needs CONFIG.toml; name the configuration that --set changes");
  const auto launched = meet_ranks(device_of(options.device));
  if (options.quick)
    return launched->ends_all([&] { return quick_preflight_on(options, *launched); });
  ReportFile file({options.report, options.failed_hosts, version_and_commit()});
  return launched->ends_all([&] {
    if (launched->rank() == 0) file.check();
    try {
      return preflight_on(options, *launched, file);
    } catch (const std::exception& error) {
      if (launched->rank() == 0) file.fail(error);  // before the hosts are known
      throw;
    }
  });
}

Verb preflight_verb() {
  auto o = std::make_shared<PreflightVerbOptions>();
  return {"preflight",
          "benchmark all hosts of a run, and report faulty or slow ones",
          {{"config", &o->config, "Configuration", "CONFIG.toml",
            "configuration of a run, to measure its matmuls, layout and steps (default: no model)"},
           settings_flag(o->settings),
           {"--cluster-out", &o->cluster_out, "Output", "FILE",
            "cluster file with the measured rates, for plans; written if no fault is found",
            kWithDefault},
           {"--baseline", &o->baseline, "Output", "FILE",
            "file of earlier results to compare with; updated if no fault is found (default: "
            "preflight.json beside --cluster-out)"},
           {"--report", &o->report, "Output", "FILE.json",
            "JSON file with all findings, for scripts; also written after an error (default: "
            "none)"},
           {"--failed-hosts", &o->failed_hosts, "Output", "FILE",
            "file with the names of faulty hosts, for `sbatch --exclude`; also written after an "
            "error (default: none)"},
           {"--scratch", &o->scratch, "Host", "DIR", "directory in which storage is measured",
            kWithDefault},
           {"--device", &o->device, "Host", "cpu|cuda", kDeviceHelp},
           {"--quick", &o->quick, "Host", "",
            "only check matmuls, memory and error counters, in a few seconds; writes no file"},
           threads_flag(o->threads)},
          [o] { return run_preflight(*o); }};
}

}  // namespace lockstep
