// GpuTelemetry reports the state of a run's GPU from NVML (core/system/gpu_monitor.h). It logs a
// line at the start, and adds clock, power, temperature and energy to the records of some steps. It
// warns when heat or the power supply throttle the clocks, because no setting of the run fixes the
// lower MFU then.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "core/system/gpu_monitor.h"
#include "core/tensor.h"

namespace lockstep {

class GpuTelemetry {
 public:
  // Logs the line if NVML knows the GPU. Make it before the process allocates GPU memory: all
  // memory in use then belongs to other processes, whatever process id a container shows for this
  // one.
  explicit GpuTelemetry(Device gpu);

  // Text "; other processes hold 2.00 GiB of it: 4242"; empty if there were none.
  const std::string& others() const { return others_; }

  // Reads the state after `step`. Returns nullopt if the last reading is less than a second old,
  // because a query takes some milliseconds, or if nothing is known. Warns once for each cause.
  // Energy comes from NVML's counter, or for GPUs before Volta from power by the trapezoidal rule.
  // It includes evaluations and saves between the steps, and is unknown in the first reading.
  std::optional<GpuReading> read(std::int64_t step);

 private:
  using Clock = std::chrono::steady_clock;
  struct Sample {  // values of the previous reading
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
