// `lockstep preflight`.
#pragma once

#include <string>
#include <vector>

#include "launch/config.h"

namespace lockstep {

struct PreflightVerbOptions {
  std::string config;             // a TOML file; empty: of no model
  std::vector<Setting> settings;  // of --set
  std::string cluster_out = "cluster.json";
  std::string baseline;       // empty: beside cluster_out, see run_preflight
  std::string scratch = ".";  // a folder
  std::string device = "best";
  int threads = 0;  // 0: every processor that a rank may run on
};

// All ranks that a launcher started, or this one alone. Where nothing is wrong rank 0 writes
// cluster_out and what was found (preflight.json beside it, unless named), which the next time is
// compared with. Its exit code: 75 where a machine is ill or slow, 78 where the configuration is
// wrong.
int run_preflight(const PreflightVerbOptions& options);

}  // namespace lockstep
