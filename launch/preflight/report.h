// PreflightReport: what rank 0 of `lockstep preflight` prints of what all ranks found, and keeps.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dist/comms.h"
#include "launch/plan/cluster.h"
#include "launch/preflight/health.h"

namespace lockstep {

class PreflightReport {
 public:
  struct Files {
    std::filesystem::path cluster, baseline;
  };
  // Before anything is measured. Throws ConfigError or DataError where the files are one, could not
  // be written in the end or are others than preflight writes, or the baseline is damaged. `world`
  // outlives it.
  PreflightReport(World& world, const Topology& topology, const Files& files);
  PreflightReport(const PreflightReport&) = delete;
  PreflightReport& operator=(const PreflightReport&) = delete;
  // Where it ends before all is measured, also by the ranks' watch, what was found by then is said:
  // an ill machine may be why.
  ~PreflightReport();

  void hear(std::vector<std::vector<Finding>> by_rank);  // all that was found so far
  // Prints what is wrong; where nothing is, writes both files. What nothing measures (Cluster's
  // costs of a run) is as in `named`, which plan.cluster names, or, nullptr, as it was in the file.
  // Returns the exit code.
  int conclude(Cluster cluster, const Cluster* named);

 private:
  void say_so_far() noexcept;

  World& world_;
  const std::size_t hosts_;
  const std::vector<Who> who_;
  const Files files_;
  const Baseline before_;
  const std::optional<Cluster> cluster_before_;
  std::mutex mutex_;  // the watch has a thread of its own
  std::vector<std::vector<Finding>> by_rank_;
  bool is_said_ = false;
};

}  // namespace lockstep
