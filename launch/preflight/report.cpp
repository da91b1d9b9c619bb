#include "launch/preflight/report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <span>
#include <thread>
#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "core/output.h"
#include "launch/plan/cluster_file.h"
#include "launch/plan/plan_errors.h"
#include "launch/preflight/preflight.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostReportBytes = 64 << 20;

Baseline read_baseline(const fs::path& file) {
  if (!path_exists(file)) return {};
  const Json json = Json::parse(read_text(file, kMostReportBytes), file.string());
  return in_context([&] { return Baseline::parse(json); }, file.string());
}

// Reads the old cluster file, for its values that nothing measures.
std::optional<Cluster> read_cluster(const fs::path& file) {
  std::error_code unknown;
  if (!path_exists(file) || fs::is_empty(file, unknown)) return std::nullopt;
  try {
    return load_cluster(file);
  } catch (const AccessError&) {
    throw;
  } catch (const DataError& error) {
    log_warning(error.what(), "; its prices and interruption rates, if any, will be lost");
    return std::nullopt;
  }
}

std::string in_column(double value, Finding::Unit unit) {
  return std::isnan(value) ? "-" : in_words(value, unit);
}

constexpr const char* kNew = "(other)";  // in the column "best so far"

// One line per check: the worst rank, the median of all ranks, the limit, and the best so far.
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
  std::string text = line("", {"worst", "median", "limit", "best so far", ""});
  for (const auto& row : verdict.rows)
    text += line(row.check,
                 {in_column(row.worst, row.unit), in_column(row.median, row.unit),
                  in_column(row.limit, row.unit), row.is_new ? kNew : in_column(row.best, row.unit),
                  row.is_well ? "ok" : "WRONG"});
  return text;
}

// Advice for checks whose name does not suggest a remedy.
std::string remedies(const HealthVerdict& verdict) {
  const bool is_busy = std::ranges::any_of(verdict.rows, [](const auto& row) {
    return row.check == kProcessorShare && is_worse(row.worst, row.limit, row.unit);
  });
  return is_busy ? "other programs use these CPU cores (see `top`): stop them, or pass fewer "
                   "--threads\n"
                 : "";
}

std::string in_words(const HealthVerdict& verdict) {
  std::string text = table(verdict);
  if (std::ranges::any_of(verdict.rows, &HealthVerdict::Row::is_new))
    text += str(kNew, ": earlier values belong to another configuration\n");
  text += "\n";
  for (const auto& fault : verdict.faults)
    text += str(fault.whose, ": ", fault.what, "\n");
  return text + remedies(verdict);
}

void write_json(WriteFile& file, const Json& json) {
  const auto text = str(json.dump(1), "\n");
  file.write(std::as_bytes(std::span(text)));
}

// Renames the plan errors file: its errors belong to plans of the earlier measurement.
void set_residuals_aside(const fs::path& cluster) {
  const auto file = PlanErrors::file_beside(cluster);
  if (!path_exists(file)) return;
  const fs::path aside = str(file.string(), ".before");
  rename_durably(file, aside);
  log_info("renamed ", file.string(), ", the plan errors of the earlier measurement, to ",
           aside.string());
}

// Writes both files, or neither if the disk is full.
void write_both(const fs::path& cluster_file, const Cluster& cluster, const fs::path& baseline_file,
                const Baseline& baseline) {
  WriteFile first(cluster_file), second(baseline_file);
  write_json(first, to_json(cluster));
  write_json(second, baseline.to_json());
  set_residuals_aside(cluster_file);
  first.commit();
  second.commit();
}

// Checks before the measurements that the file can be written.
void check_output(const char* option, const fs::path& file) {
  const auto folder = fs::absolute(file).parent_path();
  if (!directory_exists(folder))
    throw ConfigError(str(option, " ", file.string(), ": no directory ", folder.string()));
  if (directory_exists(file))
    throw ConfigError(str(option, " ", file.string(), ": expected a file, found a directory"));
  const WriteFile probe(file);
}

bool is_cluster_file(const fs::path& file) {
  try {
    return is_cluster(Json::parse(read_text(file, kMostReportBytes), file.string()));
  } catch (const AccessError&) {
    throw;
  } catch (const DataError&) {
    return false;
  }
}

// Rejects an existing file that is not a cluster.json, such as hand-written TOML.
void check_replaceable(const fs::path& cluster) {
  std::error_code unknown;
  if (!path_exists(cluster) || fs::is_empty(cluster, unknown) || is_cluster_file(cluster)) return;
  const auto other =
      fs::path(cluster).replace_filename(str(cluster.stem().string(), "-measured.json"));
  throw ConfigError(str("--cluster-out ", cluster.string(),
                        ": file exists and is not a cluster.json of `lockstep preflight`; name "
                        "another file, such as --cluster-out ",
                        other.string()));
}

PreflightReport::Files checked(const PreflightReport::Files& files,
                               const ReportFile::Files& of_scripts) {
  const std::array<std::pair<const char*, const fs::path&>, 4> all{
      {{"--cluster-out", files.cluster},
       {"--baseline", files.baseline},
       {"--report", of_scripts.report},
       {"--failed-hosts", of_scripts.failed_hosts}}};
  for (auto one = all.begin(); one != all.end(); ++one) {
    const auto& [option, file] = *one;
    if (file.empty()) continue;
    for (auto other = one + 1; other != all.end(); ++other)
      if (fs::weakly_canonical(file) == fs::weakly_canonical(other->second))
        throw ConfigError(str(option, " ", file.string(), " and ", other->first, " ",
                              other->second.string(), " are the same file; use different files"));
    check_output(option, file);
  }
  check_replaceable(files.cluster);
  return files;
}

// A launcher that ends a job sends SIGTERM to all ranks. To the failure detector, ranks that end by
// it look like ranks that died.
volatile std::sig_atomic_t was_terminated = 0;
void note_termination(int) {
  was_terminated = 1;
}

// The lost ranks, or none if a launcher may have ended them.
std::vector<int> truly_lost(const std::vector<int>& lost) {
  if (lost.empty() || was_terminated != 0) return {};
  std::signal(SIGTERM, note_termination);  // the failure detector ignores the signal from now on
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // this rank may get it last
  return was_terminated != 0 ? std::vector<int>() : lost;
}

// Describes the state of the files if there are faults.
std::string left_as_they_are(const PreflightReport::Files& files) {
  const auto cluster = files.cluster.string(), baseline = files.baseline.string();
  const bool has_cluster = path_exists(files.cluster), has_baseline = path_exists(files.baseline);
  if (has_cluster == has_baseline)
    return str(cluster, " and ", baseline, has_cluster ? " are unchanged" : " are not written");
  return str(has_cluster ? cluster : baseline, " is unchanged, ", has_cluster ? baseline : cluster,
             " is not written");
}

void say(const HealthVerdict& verdict, const std::string& where_well) {
  write_output(str(in_words(verdict), verdict.faults.empty() ? where_well : ""));
}

}  // namespace

PreflightReport::PreflightReport(World& world, const Topology& topology, const Files& files,
                                 ReportFile& file)
    : world_(world),
      hosts_(machines(topology).size()),
      who_(who_is_who(topology)),
      files_(checked(files, file.files())),
      file_(file),
      before_(read_baseline(files_.baseline)),
      cluster_before_(read_cluster(files_.cluster)) {
  if (world.size() > 1) std::signal(SIGTERM, note_termination);
  world.set_exit_handler([this](const auto& why, int exit_code, const auto& lost) {
    end_early({.text = why, .exit_code = exit_code, .lost = lost});
  });
}

PreflightReport::~PreflightReport() {
  world_.set_exit_handler({});
}

void PreflightReport::hear(std::vector<std::vector<Finding>> by_rank) {
  const std::lock_guard lock(mutex_);
  by_rank_ = std::move(by_rank);
}

void PreflightReport::fail(const std::exception& error) noexcept {
  end_early(ReportFile::error_of(error));
}

// A faulty host may be the reason for the end.
void PreflightReport::end_early(ReportFile::Error error) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    const auto verdict = judge(by_rank_, who_, before_);
    if (!std::exchange(is_said_, true) && !by_rank_.empty())
      say(verdict, "no faults found before preflight ended\n");
    error.lost = truly_lost(error.lost);
    file_.write(verdict, error);
  } catch (const std::exception& failure) {
    log_warning(failure.what());
  }
}

int PreflightReport::conclude(Cluster cluster, const Cluster* named) {
  const std::lock_guard lock(mutex_);
  if (named == nullptr && cluster_before_) named = &*cluster_before_;
  if (named != nullptr) take_run_costs(cluster, *named);
  is_said_ = true;
  const auto verdict = judge(by_rank_, who_, before_);
  const auto ranks = who_.size();
  say(verdict, str("no faults found on ", ranks, ranks == 1 ? " rank" : " ranks", ", ", hosts_,
                   hosts_ == 1 ? " host\n" : " hosts\n"));
  const int code = verdict.exit_code();
  if (code == 0) {
    write_both(files_.cluster, cluster, files_.baseline, baseline_of(by_rank_, who_, before_));
    log_info("wrote ", files_.cluster.string(), " and ", files_.baseline.string());
  } else {
    log_warning(left_as_they_are(files_));
  }
  file_.write(verdict, {});
  return code;
}

}  // namespace lockstep
