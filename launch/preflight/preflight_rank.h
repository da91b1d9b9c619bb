// PreflightRank: shared state of the checks of preflight (launch/preflight/preflight.h): the rank,
// its findings, and ways to measure. docs/preflight.md describes each check and how it is judged.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/function_ref.h"
#include "core/system/hardware.h"
#include "dist/comms.h"
#include "launch/preflight/health.h"

namespace lockstep {

constexpr std::int64_t kMiB = 1 << 20;

// Tolerances of comparisons with other ranks and with the best earlier value (Finding::tolerance).
// CPUs have wider ones, because cloud instances share caches, clocks and networks.
struct Tolerances {
  double products, clocks, memory, copies, links, latency, storage, steps;
};
const Tolerances& tolerances_of(Device::Kind kind);
// Share of the HBM peak that a copy reaches: 3.0 of 3.35 TB/s on H100, 4.3 of 4.8 TB/s on H200.
constexpr double kCopyShare = 0.9;
// Least share of the expected rates of a known GPU, below those of healthy H100s: 2.8 of 3.35 TB/s,
// 52 of 55 GB/s, 350 of 370 GB/s.
constexpr double kMemoryLimit = 0.83, kLinkLimit = 0.94;

struct PreflightRank {
  World& world;
  const Topology& topology;
  Comms& comms;
  Stream& compute;
  const Hardware* known;  // expected rates of the GPU; nullptr: CPU, or unknown GPU
  std::vector<Finding> findings{};
  // Bytes in use before all checks. On a GPU they are those of all processes and the reserve of a
  // run. On CPUs they are those of this process, without file pages.
  std::int64_t own_bytes_before = 0;
  std::optional<Arena> transfers{};  // memory that `comms` send from

  bool on_gpus() const { return compute.is_cuda(); }
  const Tolerances& tolerances() const { return tolerances_of(compute.device().kind); }

  // A barrier of all ranks.
  void meet();
  // After a barrier, adds `finding` as completed by measure(finding), or with the reason of its
  // failure. Returns its value; 0: no value.
  double add(Finding finding, const std::function<void(Finding&)>& measure);
  // Adds a common finding of all ranks and hosts. Only rank 0 reports it.
  void add_of_all(Finding finding);
  void keep(Finding finding);  // adds the configuration of this rank to Finding::of
};

// Throws TransientError if NVML returned an error: `failure` of core/system/gpu_monitor.h.
void require_answer(const std::string& failure);

// The numbers of all ranks, by rank.
std::vector<double> numbers_of_ranks(World& world, double mine);
double largest_of_ranks(World& world, double mine);
double median_of_ranks(World& world, double mine);

double seconds_since(std::chrono::steady_clock::time_point begin);
// Number of calls that fit into the window of a measurement, at least `least`.
int calls_in_window(double seconds_of_one, int least = 1);
// Mean seconds of the calls that fit into the window, or of the first call if it takes over 2 s.
// Calls at_end() while the calls run.
double mean_seconds(
    Stream& stream, FunctionRef<void()> work, FunctionRef<void()> at_end = [] {});

// `bytes`, reduced to a small part of the memory of a small GPU.
std::int64_t bytes_within(const Stream& stream, std::int64_t bytes);
std::span<std::byte> bytes_in(const Tensor& tensor);  // for memory that the host can read
// Fills memory with words that storage cannot compress and a faulty copy cannot match by chance.
void fill_words(std::span<std::byte> bytes, std::uint64_t seed);
std::string hash_of(Stream& stream, ConstTensor tensor);

}  // namespace lockstep
