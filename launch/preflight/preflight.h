// Preflight: what the machines of a run do before it: figures of each rank, for
// launch/preflight/health.h to judge, and the Cluster that plans are calibrated on. The same checks
// on GPUs and processors; what only GPUs have is left out elsewhere. docs/preflight.md lists them.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "core/function_ref.h"
#include "dist/comms.h"
#include "launch/plan/cluster.h"
#include "launch/preflight/health.h"
#include "train/config.h"

namespace lockstep {

struct PreflightOptions {
  const Config* config = nullptr;    // whose products, layout and steps; nullptr: of no model
  const Cluster* cluster = nullptr;  // that its plan.cluster names; nullptr: none
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

// What a GPU is to do at least a part of, and what was not measured of it: that of the table
// (`known`), or of a file that a person wrote. cluster.json, which preflight wrote, says only what
// its adapters had, where that is less. Nothing where neither knows the GPU. Throws ConfigError
// where a person's file is of another GPU that is known.
std::optional<Hardware> expected_hardware(const Hardware* known, const Cluster* file);

// Bytes a second, 0 where it was not measured: `memory` of a copy, read and written; `host` of the
// slower direction; `hosts` to another host, by the adapter of this rank alone.
struct MeasuredRates {
  double memory = 0, host = 0, hosts = 0;
};
// Peaks of which that is what is reached.
Hardware calibrated(Hardware gpu, const MeasuredRates& rates);

// How ranks are named, and known again the next time.
std::vector<Who> who_is_who(const Topology& topology);

}  // namespace lockstep
