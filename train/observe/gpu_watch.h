// GpuWatch: what a run says of the GPU it is on, by NVML (core/system/gpu_monitor.h): a line at its
// start, clock, power, temperature and energy in some steps' records, and a warning where heat or
// the power supply hold the clocks down, as MFU then falls for a reason that no setting mends.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "core/system/gpu_monitor.h"
#include "core/tensor.h"

namespace lockstep {

class GpuWatch {
 public:
  // Logs the line, where NVML knows the GPU. Before the process has memory of it: what is held then
  // is others', by whatever number a container sees this process.
  explicit GpuWatch(Device gpu);

  // "; other processes hold 2.00 GiB of it: 4242"; empty where there were none.
  const std::string& others() const { return others_; }

  // Of now, behind `step`, or nothing: at most once a second, as asking takes some milliseconds,
  // and only what is known. Warns once for each cause. Energy is by NVML's counter, of which GPUs
  // before Volta have none: then power, by the trapezoidal rule. It holds evaluations and saves
  // between the steps too, and is unknown the first time.
  std::optional<GpuReading> read(std::int64_t step);

 private:
  using Clock = std::chrono::steady_clock;
  struct Sample {  // of the reading before
    Clock::time_point time;
    std::int64_t step = 0;
    std::optional<double> energy_joules;
    double power_watts = 0;
  };
  void add_energy(GpuReading& reading, std::int64_t step, Clock::time_point now);

  GpuMonitor monitor_;
  std::string name_, others_;
  Clock::time_point next_;
  std::optional<Sample> before_;
  std::set<std::string> warned_of_;
};

}  // namespace lockstep
