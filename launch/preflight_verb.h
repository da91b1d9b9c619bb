// `lockstep preflight`.
#pragma once

#include <string>
#include <vector>

#include "launch/config.h"

namespace lockstep {

struct PreflightVerbOptions {
  std::string config;             // TOML file; empty: checks without a model
  std::vector<Setting> settings;  // from --set
  std::string cluster_out = "cluster.json";
  std::string baseline;       // empty: preflight.json beside cluster_out
  std::string report;         // empty: none
  std::string failed_hosts;   // empty: none
  std::string scratch = ".";  // directory
  std::string device = "best";
  bool quick = false;  // only the checks of a few seconds; no file is written
  int threads = 0;     // 0: every CPU core that a rank may run on
};

// Checks all ranks that a launcher started, or this rank alone. If nothing is wrong, rank 0 writes
// cluster_out and the results, to which the next preflight is compared. Returns the exit code: 75
// if a host is faulty or slow. A wrong configuration throws ConfigError (exit code 78).
int run_preflight(const PreflightVerbOptions& options);

}  // namespace lockstep
