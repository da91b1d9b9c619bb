// `lockstep plan`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/config.h"

namespace lockstep {

struct PlanOptions {
  std::string config;                // a TOML file
  std::vector<Setting> settings;     // of --set
  std::string cluster;               // a file; empty: of `gpu`, else as the configuration says
  std::string gpu;                   // empty: the cluster's
  std::int64_t nodes = 0;            // 0: the cluster's
  std::int64_t ranks = 0;            // 0: all of the cluster
  double network_gbits = 0;          // a second, of a GPU's adapter; 0: the cluster's
  double storage_gbytes = 0;         // a second, that a node reads, and writes; 0: the cluster's
  std::int64_t sequence_length = 0;  // 0: the configuration's
  bool allow_tensor_across_nodes = false;
  bool check = false;  // say only whether it fits
  bool as_json = false;
  bool explain = false;
};

// Prints the plan to standard output. Throws ConfigError where the run cannot be on such machines,
// with --check also where it has not enough memory.
int run_plan(const PlanOptions& options);

}  // namespace lockstep
