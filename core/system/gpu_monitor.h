// GpuMonitor reads one GPU's state from NVIDIA's management library (NVML). The library comes with
// the driver and is loaded at run time. If it is absent or fails (in containers, with MIG), the
// values are unknown, and nothing else changes.
// Source: NVML API Reference Guide (docs.nvidia.com/deploy/nvml-api).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// State of a GPU at one time. Unknown values are NaN.
struct GpuReading {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  double clock_mhz = kUnknown;  // clock of the multiprocessors
  double power_watts = kUnknown;
  double temperature_celsius = kUnknown;
  double energy_joules =
      kUnknown;  // since the previous reading; set by train/observe/gpu_telemetry.h
  double step_joules = kUnknown;  // per step since the previous reading; set there too
  // True if the power limit holds the clocks down, which is usual under load.
  std::optional<bool> power_capped;
  // Other causes that hold the clocks down: "heat (hardware thermal slowdown)"; empty if none.
  std::vector<std::string> slowed_by;
  // Reasons for an unknown clock or unknown causes, as in GpuAnswer::failure.
  std::string clock_failure = {}, causes_failure = {};
};

template <class Value>
struct GpuAnswer {
  std::optional<Value> value;
  std::string failure;  // reason for no value; also empty if the GPU or driver does not count it
};

// Faults that a GPU counts itself.
struct GpuHealth {
  GpuAnswer<std::int64_t> uncorrected_errors;  // memory errors since the driver was loaded
  GpuAnswer<bool> needs_repair;                // true if memory row remapping is pending or failed
  GpuAnswer<std::int64_t> link_errors;         // NVLink replays, recoveries and CRC errors
  GpuAnswer<int> links_up, links_down;
  GpuAnswer<double> most_clock_mhz;  // highest clock of the multiprocessors
};

// Other processes on a GPU.
struct GpuSharers {
  std::vector<std::int64_t> pids;
  std::int64_t bytes = 0;  // GPU memory that they use, as far as known
};

class GpuMonitor {
 public:
  // pci_bus_id: "0000:1B:00.0". CUDA_VISIBLE_DEVICES renumbers GPUs for CUDA, not for NVML.
  explicit GpuMonitor(const std::string& pci_bus_id);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  bool is_there() const;  // true if NVML knows the GPU
  std::optional<std::string> driver_version() const;
  std::optional<double> power_limit_watts() const;
  // Energy since the driver was loaded.
  std::optional<double> energy_joules() const;
  // In a container, other processes may be invisible or have other process ids.
  GpuSharers sharers() const;
  // The clique of GPUs on several hosts that NVLink switches connect: "CLUSTER/CLIQUE", where
  // CLUSTER is a UUID of 32 digits. Empty without such switches, also for switches in one host.
  std::string fabric_clique() const;
  // Addresses (core/system/machine.h) of the GPUs of this host that the GPU reaches by NVLink.
  // nullopt without NVML, or if NVML shows no other GPU (a launcher may hide them).
  std::optional<std::vector<std::string>> nvlink_peers() const;
  // Takes up to a few milliseconds of host time and no GPU time.
  GpuReading read() const;
  GpuHealth health() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;  // nullptr if absent
  void* gpu_ = nullptr;
};

// "; other processes hold 2.00 GiB of it: 4242, 4243"; empty if there are no other processes.
std::string in_words(const GpuSharers& sharers);

}  // namespace lockstep
