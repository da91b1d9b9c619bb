// ReportFile writes what a preflight found for scripts: --report and --failed-hosts.
#pragma once

#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "dist/topology/topology.h"
#include "launch/preflight/health.h"

namespace lockstep {

class ReportFile {
 public:
  // An empty path: that file is not written.
  struct Files {
    std::filesystem::path report, failed_hosts;
    std::string version;  // of the program
  };
  explicit ReportFile(Files files) : files_(std::move(files)) {}

  const Files& files() const { return files_; }
  // Removes both files of an earlier preflight. Throws ConfigError if one is another kind of file.
  void check() const;
  void place(const Topology& topology);  // sets the hosts of the ranks

  // Why preflight ended early.
  struct Error {
    std::string text = {};  // empty: it did not
    int exit_code = 0;
    std::vector<int> lost = {};  // ranks that died, stopped answering or stalled
  };
  static Error error_of(const std::exception& error);
  // Writes both files; only the first call does. Throws as fail_io() if a file cannot be written.
  void write(const HealthVerdict& verdict, const Error& error);
  // The same without findings. If a file cannot be written, logs a warning.
  void fail(const std::exception& error) noexcept;

 private:
  std::vector<std::string> failed_hosts(const HealthVerdict& verdict, const Error& error) const;
  Json report(const HealthVerdict& verdict, const Error& error,
              const std::vector<std::string>& failed) const;

  Files files_;
  std::vector<std::string> host_of_;  // of each rank; empty: unknown yet
  bool is_written_ = false;
};

}  // namespace lockstep
