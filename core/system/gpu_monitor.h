// GpuMonitor: what NVIDIA's management library (NVML) says of one GPU. The library comes with the
// driver and is loaded at run time; where it is not there, or does not answer (in containers, with
// MIG), what it would say is unknown, and nothing else changes.
// Source: NVML API Reference Guide (docs.nvidia.com/deploy/nvml-api).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// What a GPU does at a moment. Each may be unknown: NaN.
struct GpuReading {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  double clock_mhz = kUnknown;  // of the multiprocessors
  double power_watts = kUnknown;
  double temperature_celsius = kUnknown;
  double energy_joules = kUnknown;  // since the reading before, and of a step of those since:
  double step_joules = kUnknown;    // see train/observe/gpu_watch.h
  // Whether the clocks are what the power limit allows, which is usual under load.
  std::optional<bool> power_capped;
  // What else holds the clocks down: "heat (hardware thermal slowdown)"; empty where nothing does.
  std::vector<std::string> slowed_by;
  // Why the clock, or what holds it down, is unknown: as GpuAnswer::failure.
  std::string clock_failure = {}, causes_failure = {};
};

template <class Value>
struct GpuAnswer {
  std::optional<Value> value;
  std::string failure;  // why there is none; empty also where a GPU or driver does not count it
};

// What a GPU counts of its own faults.
struct GpuHealth {
  GpuAnswer<std::int64_t> uncorrected_errors;  // of its memory, since the driver was loaded
  GpuAnswer<bool> needs_repair;         // rows of its memory are to be replaced, or could not be
  GpuAnswer<std::int64_t> link_errors;  // of its NVLinks: replays, recoveries, CRC errors
  GpuAnswer<int> links_up, links_down;
  GpuAnswer<double> most_clock_mhz;  // that its multiprocessors can have
};

// Other processes on a GPU.
struct GpuSharers {
  std::vector<std::int64_t> pids;
  std::int64_t bytes = 0;  // of its memory that they hold, as far as it is known
};

class GpuMonitor {
 public:
  // pci_bus_id: "0000:1B:00.0". CUDA_VISIBLE_DEVICES renumbers GPUs for CUDA, not for NVML.
  explicit GpuMonitor(const std::string& pci_bus_id);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  bool is_there() const;  // whether NVML knows the GPU
  std::optional<std::string> driver_version() const;
  std::optional<double> power_limit_watts() const;
  // That it took since the driver was loaded.
  std::optional<double> energy_joules() const;
  // A container may not see other processes, or not by these numbers.
  GpuSharers sharers() const;
  // The clique of GPUs of several machines that NVLink switches join to it: "CLUSTER/CLIQUE",
  // cluster a UUID of 32 digits; empty where there is none, as with switches inside one machine.
  std::string fabric_clique() const;
  // Addresses (core/system/machine.h) of this machine's GPUs that it reaches by NVLink. Unknown
  // where NVML is not there, or shows this process no other GPU (a launcher may hide them).
  std::optional<std::vector<std::string>> nvlink_peers() const;
  // Takes up to some milliseconds of the host's time and none of the GPU's.
  GpuReading read() const;
  GpuHealth health() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;  // nullptr: not there
  void* gpu_ = nullptr;
};

// "; other processes hold 2.00 GiB of it: 4242, 4243"; empty where there are none.
std::string in_words(const GpuSharers& sharers);

}  // namespace lockstep
