// PreflightReport prints and stores the findings of all ranks, on rank 0 of `lockstep preflight`.
#pragma once

#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dist/comms.h"
#include "launch/plan/cluster.h"
#include "launch/preflight/health.h"
#include "launch/preflight/report_file.h"

namespace lockstep {

class PreflightReport {
 public:
  struct Files {
    std::filesystem::path cluster, baseline;
  };
  // Construct it before the measurements. Throws ConfigError or DataError if two files are the
  // same, are not writable, are not files of preflight, or if the baseline is damaged. `world` and
  // `file` outlive it. With several ranks SIGTERM no longer ends this process: the failure detector
  // does, after the report.
  PreflightReport(World& world, const Topology& topology, const Files& files, ReportFile& file);
  PreflightReport(const PreflightReport&) = delete;
  PreflightReport& operator=(const PreflightReport&) = delete;
  ~PreflightReport();

  void hear(std::vector<std::vector<Finding>> by_rank);  // replaces the findings so far
  // Prints the faults, or writes both files if there are none. Values that nothing measures (the
  // costs of a run in Cluster) come from `named`, the cluster of plan.cluster, or if it is nullptr
  // from the old cluster file. Returns the exit code.
  int conclude(Cluster cluster, const Cluster* named);
  // Call it if rank 0 ends with an error. Prints the findings so far, and writes `file`.
  void fail(const std::exception& error) noexcept;

 private:
  void end_early(ReportFile::Error error) noexcept;

  World& world_;
  const std::size_t hosts_;
  const std::vector<Who> who_;
  const Files files_;
  ReportFile& file_;
  const Baseline before_;
  const std::optional<Cluster> cluster_before_;
  std::mutex mutex_;  // the failure detector has its own thread
  std::vector<std::vector<Finding>> by_rank_;
  bool is_said_ = false;
};

}  // namespace lockstep
