// Preflight benchmarks the hosts of a run before it starts. It gives findings per rank, which
// launch/preflight/health.h judges, and the Cluster that calibrates plans. GPUs and CPUs have the
// same checks, except for those that only GPUs support. docs/preflight.md lists them.
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
  const Config* config = nullptr;    // gives matmuls, layout and steps; nullptr: no model
  const Cluster* cluster = nullptr;  // cluster of plan.cluster; nullptr: none
  Mesh mesh;
  Device device;
  int threads = 1;
  std::filesystem::path scratch{};  // directory in which storage is measured
};

struct Preflight {
  std::vector<Finding> findings;  // of this rank
  Cluster cluster;                // as measured by this rank
};

// Runs all checks; a collective call. A failed measurement of one rank is a finding; failed
// communication is an error. Throws ConfigError if the configuration cannot run. Calls
// so_far(findings) after each part with the findings of this rank so far.
Preflight preflight(
    const PreflightOptions& options, World& world, const Topology& topology,
    FunctionRef<void(const std::vector<Finding>&)> so_far = [](const auto&) {});

// The checks of a few seconds: matmuls, memory and error counters of each rank. Returns the faults
// of this rank, without those that depend on other programs; empty: none.
std::string quick_preflight(const PreflightOptions& options, World& world,
                            const Topology& topology);

// The expected rates of a GPU, which give limits and replace what was not measured. They come from
// a hand-written cluster file, or else from the table (`known`). A cluster.json of preflight only
// lowers the NIC rate. Returns nullopt if neither knows the GPU. Throws ConfigError if a
// hand-written file describes another known GPU.
std::optional<Hardware> expected_hardware(const Hardware* known, const Cluster* file);

// Bytes per second; 0: not measured. `memory`: a copy, reads plus writes. `host`: the slower
// direction between host and device. `hosts`: to another host over the NIC of this rank.
struct MeasuredRates {
  double memory = 0, host = 0, hosts = 0;
};
// Replaces the peaks of a GPU by those that correspond to the measured rates.
Hardware calibrated(Hardware gpu, const MeasuredRates& rates);

// The names of ranks, and keys that identify them in later preflights.
std::vector<Who> who_is_who(const Topology& topology);

}  // namespace lockstep
