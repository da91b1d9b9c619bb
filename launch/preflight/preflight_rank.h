// PreflightRank: what the checks of preflight (launch/preflight/preflight.h) share: the rank that
// makes them, what it found, and how it measures. What each check measures and how it is judged:
// docs/preflight.md.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "core/system/hardware.h"
#include "dist/comms.h"
#include "launch/preflight/health.h"

namespace lockstep {

constexpr std::int64_t kMiB = 1 << 20;

// How much worse than others, and than the best so far, is too much (Finding::tolerance). GPUs are
// alike and alone; processors of clouds share caches, clocks and networks with strangers.
struct Tolerances {
  double products, clocks, memory, copies, links, latency, storage, steps;
};
const Tolerances& tolerances_of(Device::Kind kind);
// Of HBM's peak, that a copy reaches: 3.0 of an H100's 3.35 TB/s, 4.3 of an H200's 4.8.
constexpr double kCopyShare = 0.9;
// Of what a GPU that is known should do, as healthy H100s do: 2.8 of 3.35 TB/s, 52 of 55 GB/s, 350
// of 370 GB/s.
constexpr double kMemoryLimit = 0.83, kLinkLimit = 0.94;

struct PreflightRank {
  World& world;
  const Topology& topology;
  Comms& comms;
  Stream& compute;
  const Hardware* known;  // what the GPU is to do; nullptr: on processors, or it is not known
  std::vector<Finding> findings{};
  std::int64_t own_bytes_before = 0;  // of the process, without its files' pages, before any check

  bool on_gpus() const { return compute.is_cuda(); }
  const Tolerances& tolerances() const { return tolerances_of(compute.device().kind); }

  // All ranks go on together.
  void meet();
  // All meet; then adds `finding`, completed by measure(finding), or with the reason why that
  // failed. Returns its value; 0: there is none.
  double add(Finding finding, const std::function<void(Finding&)>& measure);
  // What all ranks found together, of all hosts: the first one says it.
  void add_of_all(Finding finding);
  void keep(Finding finding);  // with what all figures of this rank depend on (Finding::of)
};

// Throws TransientError where NVML refused an answer: `failure` of core/system/gpu_monitor.h.
void require_answer(const std::string& failure);

// What each rank says, in their order.
std::vector<double> numbers_of_ranks(World& world, double mine);
double largest_of_ranks(World& world, double mine);
double median_of_ranks(World& world, double mine);

double seconds_since(std::chrono::steady_clock::time_point begin);
// How many calls fit into the window of a measurement, `least` at least.
int calls_in_window(double seconds_of_one, int least = 1);
// Seconds of one call, the mean of as many as fit into the window, or of the first where that takes
// over 2 s; at_end(): while they are done.
double mean_seconds(
    Stream& stream, FunctionRef<void()> work, FunctionRef<void()> at_end = [] {});

// So many bytes, or a small part of a small GPU's memory.
std::int64_t bytes_within(const Stream& stream, std::int64_t bytes);
std::span<std::byte> bytes_in(const Tensor& tensor);  // of memory that the host reads
// Words that no storage can compress and no copy can get right by chance.
void fill_words(std::span<std::byte> bytes, std::uint64_t seed);
std::string hash_of(Stream& stream, ConstTensor tensor);

}  // namespace lockstep
