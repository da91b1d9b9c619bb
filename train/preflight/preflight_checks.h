// The checks of preflight (train/preflight/preflight.h) that a rank makes, alone or with others.
// What each measures and how it is judged: docs/preflight.md.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/counters.h"
#include "core/gpu_monitor.h"
#include "dist/comms.h"
#include "train/config.h"
#include "train/plan/hardware.h"
#include "train/plan/link_times.h"
#include "train/preflight/health.h"

namespace lockstep {

struct ProductShape {  // [M, K] times [K, N]
  std::int64_t M = 0, N = 0, K = 0;
  DType dtype = DType::fp32;
  friend bool operator==(const ProductShape&, const ProductShape&) = default;
  friend bool operator<(const ProductShape& a, const ProductShape& b) {
    return std::tie(a.M, a.N, a.K, a.dtype) < std::tie(b.M, b.N, b.K, b.dtype);
  }
};
// Those that a step of the configuration spends most FLOPs on, at most four; and one that is large
// in fp32 and bf16, by which machines compare.
std::vector<ProductShape> product_shapes(const Config* config, const Stream& compute,
                                         const Topology& topology, int rank);

// What the checks share.
struct PreflightRank {
  World& world;
  const Topology& topology;
  Comms& comms;
  Stream& compute;
  const Hardware* known;  // of the GPU; nullptr: on processors, or not in the table
  std::vector<Finding> findings;

  bool on_gpus() const { return compute.is_cuda(); }
  // Adds `finding`, completed by measure(finding), or with the reason why that failed.
  void add(Finding finding, const std::function<void(Finding&)>& measure);
};

// Each shape for some tenths of a second, and whether its bits are the same each time. Returns the
// best rate of each type: fp32, bf16.
struct ProductRates {
  double fp32 = 0, bf16 = 0;
};
ProductRates check_products(PreflightRank& rank, std::span<const ProductShape> shapes,
                            const GpuMonitor* monitor);

// Bytes a second, read and written, of a copy within the device's memory.
double check_memory(PreflightRank& rank);
// Of a copy from pinned memory of the host, and back: the slower one.
double check_host_copies(PreflightRank& rank);
// Of what a rank sends to those at its place on other hosts, one at a time; 0: there is one host.
double check_hosts(PreflightRank& rank);
// Latency and bandwidth of collectives, along each axis. slowest: of check_hosts, over all ranks.
LinkTimes check_collectives(PreflightRank& rank, double slowest);

// As of StreamCosts: of a product beside all-gathers, and of these beside products.
struct Slowdown {
  double compute_beside = 1, other_beside = 1;
};
Slowdown check_slowdown(PreflightRank& rank, const ProductShape& shape);

struct StorageRates {
  double read = 0, write = 0;
};
StorageRates check_storage(PreflightRank& rank, const std::filesystem::path& scratch);

// What grew or is wrong of the machine's and the GPU's counters. before: since then.
struct HealthCounters {
  Counters machine;
  GpuHealth gpu;
};
HealthCounters read_counters(const GpuMonitor* monitor);
void check_counters(PreflightRank& rank, const HealthCounters& before, const GpuMonitor* monitor);

// Seconds that the host needs to give a GPU a call.
double launch_seconds(Stream& compute);

}  // namespace lockstep
