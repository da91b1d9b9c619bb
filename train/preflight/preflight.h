// Preflight: what the machines of a run do before it: figures of each rank, for
// train/preflight/health.h to judge, and the Cluster that plans are calibrated on. The same checks
// on GPUs and processors; what only GPUs have is left out elsewhere. docs/preflight.md lists them.
#pragma once

#include <filesystem>
#include <vector>

#include "core/function_ref.h"
#include "dist/comms.h"
#include "train/config.h"
#include "train/plan/cluster.h"
#include "train/preflight/health.h"

namespace lockstep {

struct PreflightOptions {
  const Config* config = nullptr;  // whose products, layout and steps; nullptr: of no model
  Mesh mesh;
  Device device;
  int threads = 1;
  std::filesystem::path scratch;  // a folder, where storage is measured
};

struct Preflight {
  std::vector<Finding> findings;  // of this rank
  Cluster cluster;                // as this rank found it
};

// All ranks at once. What one rank cannot measure alone is a finding that says so; where ranks
// cannot talk, an error. Throws ConfigError where the configuration cannot run. so_far(findings):
// behind each part, what this rank found up to there.
Preflight preflight(
    const PreflightOptions& options, World& world, const Topology& topology,
    FunctionRef<void(const std::vector<Finding>&)> so_far = [](const auto&) {});

// How ranks are named, and known again the next time.
std::vector<Who> who_is_who(const Topology& topology);

}  // namespace lockstep
