#include "launch/preflight/compute_checks.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "core/affinity.h"
#include "core/hash.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Unit = Finding::Unit;

constexpr double kProductLimit = 0.9;  // least share of the rate in the time model
constexpr double kShareLimit = 0.9;    // least share of CPU time

// Load of a rank while it multiplied.
struct Load {
  // CPU time of all threads, and the time that they waited for a CPU core.
  double busy_seconds = 0, waited_seconds = 0;
  GpuReading gpu;
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the seconds of a matmul.
double timed_matmul(Stream& compute, TimedMatmul& product, const GpuMonitor* monitor, Load& load) {
  const double busy_before = processor_seconds();
  const auto waited_before = seconds_without_cpu();
  const double seconds = mean_seconds(
      compute, [&] { product.make(); },
      [&] {
        if (monitor != nullptr) load.gpu = monitor->read();
      });
  load.busy_seconds += processor_seconds() - busy_before;
  const auto waited = seconds_without_cpu();
  load.waited_seconds += waited && waited_before ? *waited - *waited_before : Finding::kNone;
  return seconds;
}

// Returns FLOP/s.
double check_product(PreflightRank& rank, const MatmulShape& shape, const GpuMonitor* monitor,
                     Load& load) {
  Finding finding{.check = str("product ", in_words(shape)),
                  .unit = Unit::flops,
                  .tolerance = rank.tolerances().products};
  if (rank.known != nullptr && shape.dtype == DType::bf16)
    finding.limit = kProductLimit * shape.flops() / predicted_seconds(shape, *rank.known);
  return rank.add(finding, [&](Finding& f) {
    TimedMatmul product(rank.compute, shape);
    product.make();
    f.bits = hash_of(rank.compute, product.result());
    f.value = shape.flops() / timed_matmul(rank.compute, product, monitor, load);
    if (hash_of(rank.compute, product.result()) != f.bits)
      throw TransientError("the same matmul gave different bits the second time");
  });
}

void check_share(PreflightRank& rank, const Load& load) {
  rank.add({.check = kProcessorShare, .unit = Unit::share, .limit = kShareLimit}, [&](Finding& f) {
    if (std::isnan(load.waited_seconds))
      throw TransientError(
          "the system does not report how long threads wait for CPU cores "
          "(/proc/self/task/*/schedstat)");
    f.value = load.busy_seconds / (load.busy_seconds + load.waited_seconds);
  });
}

void check_clock(PreflightRank& rank, const GpuMonitor* monitor, const GpuReading& under_load) {
  const bool is_known = !std::isnan(under_load.clock_mhz);
  rank.add(
      {.check = "clock under load", .unit = Unit::share, .tolerance = rank.tolerances().clocks},
      [&](Finding& f) {
        if (monitor == nullptr || !monitor->is_there())
          throw TransientError("NVML does not find the GPU (is libnvidia-ml.so.1 installed?)");
        require_answer(under_load.clock_failure);
        if (!is_known) return;
        const auto most = monitor->health().most_clock_mhz;
        require_answer(most.failure);
        if (most.value) f.value = under_load.clock_mhz / *most.value;
        f.detail = str(under_load.clock_mhz, " MHz");
      });
  rank.add({.check = "causes that hold clocks down", .limit = 0}, [&](Finding& f) {
    require_answer(under_load.causes_failure);
    if (!under_load.power_capped) return;  // without this cause, the others are unknown too
    f.value = static_cast<double>(under_load.slowed_by.size());
    for (const auto& cause : under_load.slowed_by)
      f.detail += str(f.detail.empty() ? "" : ", ", cause);
  });
}

}  // namespace

ProductRates check_products(PreflightRank& rank, std::span<const MatmulShape> shapes,
                            const GpuMonitor* monitor) {
  ProductRates best;
  Load load;
  for (const MatmulShape& shape : shapes) {
    double& rate = shape.dtype == DType::fp32 ? best.fp32 : best.bf16;
    rate = std::max(rate, check_product(rank, shape, monitor, load));
  }
  if (rank.on_gpus())
    check_clock(rank, monitor, load.gpu);
  else
    check_share(rank, load);
  return best;
}

double check_memory(PreflightRank& rank) {
  const auto bytes = bytes_within(rank.compute, (rank.on_gpus() ? 1024 : 64) * kMiB);
  Finding finding{.check = "memory, read and written",
                  .unit = Unit::bytes_per_second,
                  .tolerance = rank.tolerances().memory};
  if (rank.known != nullptr) finding.limit = kMemoryLimit * rank.known->hbm_bytes_per_second;
  return rank.add(finding, [&](Finding& f) {
    Arena arena(rank.compute.device(), Arena::Memory::device, 2 * bytes + kMiB);
    Arena pinned(rank.compute.device(), Arena::Memory::pinned_host, bytes);
    const Tensor from = arena.allocate("from", DType::fp32, {bytes / 4});
    const Tensor to = arena.allocate("to", DType::fp32, {bytes / 4});
    const Tensor words = pinned.allocate("words", DType::fp32, {bytes / 4});
    fill_words(bytes_in(words), 1);
    rank.compute.copy(from, words);
    const double seconds = mean_seconds(rank.compute, [&] {
      // Stream::copy uses one thread on a CPU.
      rank.on_gpus() ? rank.compute.copy(to, from) : convert(rank.compute, to, from);
    });
    f.value = 2.0 * static_cast<double>(bytes) / seconds;
    if (hash_of(rank.compute, to) != hash_hex(bytes_in(words)))
      throw TransientError("a copy differs from its source");
  });
}

double check_host_copies(PreflightRank& rank) {
  const auto bytes = bytes_within(rank.compute, (rank.on_gpus() ? 256 : 64) * kMiB);
  const auto check = [&](const char* what, bool is_back) {
    Finding finding{
        .check = what, .unit = Unit::bytes_per_second, .tolerance = rank.tolerances().copies};
    if (rank.known != nullptr) finding.limit = kLinkLimit * rank.known->host_bytes_per_second;
    return rank.add(finding, [&](Finding& f) {
      Arena arena(rank.compute.device(), Arena::Memory::device, bytes);
      Arena pinned(rank.compute.device(), Arena::Memory::pinned_host, bytes);
      const Tensor on_device = arena.allocate("on the device", DType::fp32, {bytes / 4});
      const Tensor on_host = pinned.allocate("on the host", DType::fp32, {bytes / 4});
      fill_words(bytes_in(on_host), 2);
      rank.compute.copy(on_device, on_host);
      const double seconds = mean_seconds(rank.compute, [&] {
        is_back ? rank.compute.copy(on_host, on_device) : rank.compute.copy(on_device, on_host);
      });
      f.value = static_cast<double>(bytes) / seconds;
    });
  };
  const double there = check("copy from the host", false), back = check("copy to the host", true);
  return std::min(there, back);
}

double launch_seconds(Stream& compute) {
  if (!compute.is_cuda()) return 0;
  constexpr int kCalls = 1000;  // below the limit of pending launches
  Arena arena(compute.device(), Arena::Memory::device, kMiB);
  const Tensor few = arena.allocate("few", DType::fp32, {32});
  const auto enqueue = [&] {
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i)
      fill(compute, few, 1.0f);
    return seconds_since(begin) / kCalls;
  };
  enqueue();
  compute.synchronize();
  const double seconds = enqueue();
  compute.synchronize();
  return seconds;
}

}  // namespace lockstep
