#include "launch/preflight/report_file.h"

#include <algorithm>
#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "core/wall_clock.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "lockstep preflight report 1";
constexpr std::int64_t kMostBytes = 64 << 20;

bool is_report(const fs::path& file) {
  try {
    const Json json = Json::parse(read_text(file, kMostBytes), file.string());
    return text_at(json, "format") == kFormat;
  } catch (const AccessError&) {
    throw;
  } catch (const DataError&) {
    return false;
  }
}

// True for one line without spaces, with its line break. A host file of mpirun has "n1 slots=8".
bool is_list(const fs::path& file) {
  const auto text = read_text(file, kMostBytes);
  return text.ends_with('\n') && text.find_first_of(" \t\n") == text.size() - 1;
}

// Removes a file for which is_ours(file).
void remove_earlier(const char* option, const fs::path& file, bool (*is_ours)(const fs::path&)) {
  if (file.empty() || !path_exists(file)) return;
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) return;
  if (!fs::is_empty(file, unknown) && !is_ours(file))
    throw ConfigError(str(option, " ", file.string(),
                          ": file exists and was not written by `lockstep preflight ", option,
                          "`; name another file"));
  fs::remove(file, unknown);
}

std::vector<std::string> once_each(const std::vector<std::string>& hosts) {
  std::vector<std::string> all;
  for (const auto& host : hosts)
    if (std::ranges::find(all, host) == all.end()) all.push_back(host);
  return all;
}

Json::Array json_of(const std::vector<std::string>& texts) {
  Json::Array all;
  for (const auto& text : texts)
    all.emplace_back(text);
  return all;
}

// Slurm's name of a host, which has no domain: "n1" for "n1.cluster".
std::string in_one_line(const std::vector<std::string>& hosts) {
  std::string line;
  for (const auto& host : hosts)
    line += str(line.empty() ? "" : ",", host.substr(0, host.find('.')));
  return line + "\n";
}

}  // namespace

void ReportFile::check() const {
  remove_earlier("--report", files_.report, is_report);
  remove_earlier("--failed-hosts", files_.failed_hosts, is_list);
}

ReportFile::Error ReportFile::error_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const lockstep::Error*>(&error);
  return {.text = error.what(), .exit_code = ours != nullptr ? ours->exit_code() : 1};
}

void ReportFile::fail(const std::exception& error) noexcept {
  try {
    write({}, error_of(error));
  } catch (const std::exception& failure) {
    log_warning(failure.what());
  }
}

void ReportFile::place(const Topology& topology) {
  for (const auto& place : topology.places)
    host_of_.push_back(place.host);
}

// Hosts of faults that a rank found at itself, and of lost ranks. A fault of all ranks together and
// a wrong configuration name no host.
std::vector<std::string> ReportFile::failed_hosts(const HealthVerdict& verdict,
                                                  const Error& error) const {
  std::vector<bool> has_failed(host_of_.size());
  for (const auto& result : verdict.results)
    if (!result.fault.empty() && !result.is_of_all && !result.is_wrong_configuration)
      has_failed.at(result.rank) = true;
  for (const int rank : error.lost)
    has_failed.at(static_cast<std::size_t>(rank)) = true;
  std::vector<std::string> hosts;
  for (std::size_t rank = 0; rank < host_of_.size(); ++rank)
    if (has_failed[rank]) hosts.push_back(host_of_[rank]);
  return once_each(hosts);
}

Json ReportFile::report(const HealthVerdict& verdict, const Error& error,
                        const std::vector<std::string>& failed) const {
  Json::Array findings;
  for (const auto& result : verdict.results) {
    const bool is_of_all = result.is_of_all;
    findings.push_back(
        Json::Object{{"host", is_of_all ? Json() : Json(host_of_.at(result.rank))},
                     {"rank", is_of_all ? Json() : Json(static_cast<std::int64_t>(result.rank))},
                     {"check", result.check},
                     {"measured", result.measured},
                     {"expected", result.expected},
                     {"unit", name(result.unit)},
                     {"verdict", result.fault.empty() ? "ok" : "wrong"},
                     {"fault", result.fault}});
  }
  const bool has_ended = error.text.empty();
  return Json::Object{{"format", kFormat},
                      {"version", files_.version},
                      {"time_seconds", seconds_since_1970()},
                      {"verdict", !has_ended               ? "incomplete"
                                  : verdict.faults.empty() ? "ok"
                                                           : "wrong"},
                      {"exit_code", has_ended ? verdict.exit_code() : error.exit_code},
                      {"error", error.text},
                      {"hosts", json_of(once_each(host_of_))},
                      {"failed_hosts", json_of(failed)},
                      {"findings", std::move(findings)}};
}

void ReportFile::write(const HealthVerdict& verdict, const Error& error) {
  if (std::exchange(is_written_, true)) return;
  const auto failed = failed_hosts(verdict, error);
  if (!files_.report.empty())
    write_text(files_.report, report(verdict, error, failed).dump(1) + "\n");
  if (!files_.failed_hosts.empty())
    write_text(files_.failed_hosts, failed.empty() ? "" : in_one_line(failed));
}

}  // namespace lockstep
