#include "launch/preflight_verb.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <span>

#include "core/file.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "dist/nccl_world.h"
#include "launch/device.h"
#include "launch/output.h"
#include "launch/ranks.h"
#include "train/layout.h"
#include "train/preflight/preflight.h"
#include "train/run_parts.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostBytes = 64 << 20;
constexpr std::int64_t kStallSeconds = 120;  // slow disks are to be named, not to end all

fs::path baseline_file(const PreflightVerbOptions& options) {
  if (!options.baseline.empty()) return options.baseline;
  return fs::path(options.cluster_out).parent_path() / "preflight.json";
}

Baseline read_baseline(const fs::path& file) {
  if (!path_exists(file)) return {};
  const Json json = Json::parse(read_text(file, kMostBytes), file.string());
  return in_context([&] { return Baseline::parse(json); }, file.string());
}

std::string in_column(double value, Finding::Unit unit) {
  return std::isnan(value) ? "-" : in_words(value, unit);
}

// A line a check: its worst rank, the median of all, what is expected, the last time's.
std::string table(const HealthVerdict& verdict) {
  std::size_t width = 0;
  for (const auto& row : verdict.rows)
    width = std::max(width, row.check.size());
  const auto line = [&](const std::string& check, const std::array<std::string, 5>& columns) {
    std::string text = check;
    text.resize(width, ' ');
    for (const auto& column : columns)
      text += str("  ", std::string(column.size() < 13 ? 13 - column.size() : 0, ' '), column);
    return str(text, "\n");
  };
  std::string text = line("", {"worst", "median", "limit", "last time", ""});
  for (const auto& row : verdict.rows)
    text += line(row.check, {in_column(row.worst, row.unit), in_column(row.median, row.unit),
                             in_column(row.limit, row.unit), in_column(row.last, row.unit),
                             row.is_well ? "ok" : "WRONG"});
  return text;
}

std::string in_words(const HealthVerdict& verdict, int ranks, std::size_t hosts) {
  std::string text = table(verdict);
  text += "\n";
  for (const auto& fault : verdict.faults)
    text += str(fault.whose, ": ", fault.what, "\n");
  if (verdict.faults.empty())
    text += str("nothing is wrong with ", ranks, ranks == 1 ? " rank" : " ranks", " on ", hosts,
                hosts == 1 ? " host\n" : " hosts\n");
  return text;
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

// Prints what is wrong; where nothing is, writes both files. Returns the exit code.
int conclude(const PreflightVerbOptions& options, const Preflight& mine,
             const std::vector<std::vector<Finding>>& by_rank, const Topology& topology) {
  const auto file = baseline_file(options);
  const auto who = who_is_who(topology);
  const auto verdict = judge(by_rank, who, read_baseline(file));
  write_output(in_words(verdict, static_cast<int>(who.size()), machines(topology).size()));
  const int code = verdict.exit_code();
  if (code == 0) {
    write_cluster(options.cluster_out, mine.cluster);
    write_text(file, str(baseline_of(by_rank, who).to_json().dump(1), "\n"));
    log_info("wrote ", options.cluster_out, " and ", file.string());
  } else {
    log_warning(options.cluster_out, " and ", file.string(), " stay as they were");
  }
  return code;
}

// Before all is measured, what would be of no use then.
void check_files(const PreflightVerbOptions& options) {
  const auto folder = fs::absolute(options.cluster_out).parent_path();
  if (!directory_exists(folder))
    throw ConfigError(str("--cluster-out ", options.cluster_out, ": no folder ", folder.string()));
  read_baseline(baseline_file(options));
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
      config ? mesh_of(config->values.layout, launched.size()) : Mesh{{1, launched.size(), 1}};
  const auto placed = place_ranks(launched, settings, mesh, device, TensorAcross::allowed);
  const auto watched = watch_ranks(*placed.world, kStallSeconds);
  World& host = watched ? *watched : *placed.world;
  return host.ends_all([&] {
    if (host.rank() == 0) check_files(options);
    const bool by_nccl = device.kind == Device::Kind::cuda && host.size() > 1;
    const auto nccl = by_nccl ? make_nccl_world(host, device) : nullptr;
    World& world = nccl ? *nccl : host;
    const int threads = options.threads > 0 ? options.threads
                        : config            ? threads_of(config->values)
                                            : processors_allowed();
    const auto found = preflight({.config = config ? &config->values : nullptr,
                                  .mesh = mesh,
                                  .device = device,
                                  .threads = threads,
                                  .scratch = options.scratch},
                                 world, placed.topology);
    const auto by_rank = findings_of_ranks(world, found.findings);
    const int code = world.rank() == 0 ? conclude(options, found, by_rank, placed.topology) : 0;
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

}  // namespace lockstep
