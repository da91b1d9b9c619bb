#include "train/observe/gpu_telemetry.h"

#include <cmath>
#include <utility>

#include "core/gpu.h"
#include "core/log.h"
#include "core/units.h"

namespace lockstep {
namespace {

bool says_nothing(const GpuReading& r) {
  return std::isnan(r.clock_mhz) && std::isnan(r.power_watts) &&
         std::isnan(r.temperature_celsius) && !r.power_capped;
}

// Text " at 1100 MHz and 91 C" with the known values.
std::string state(const GpuReading& r) {
  std::string text;
  if (!std::isnan(r.clock_mhz)) text = str(" at ", r.clock_mhz, " MHz");
  if (!std::isnan(r.temperature_celsius))
    text += str(text.empty() ? " at " : " and ", r.temperature_celsius, " C");
  return text;
}

}  // namespace

GpuTelemetry::GpuTelemetry(Device gpu) : monitor_(gpu::pci_bus_id(gpu.index)) {
  if (!monitor_.is_there()) return;
  const auto properties = gpu::properties(gpu.index);
  name_ = str(properties.name, " (", gpu::pci_bus_id(gpu.index), ")");
  others_ = in_words(monitor_.sharers());
  const auto watts = monitor_.power_limit_watts();
  const auto driver = monitor_.driver_version();
  log_info("GPU: ", name_, ", ", human_memory(static_cast<double>(properties.memory_bytes)),
           watts ? str(", power limit ", *watts, " W") : "", driver ? ", driver " + *driver : "",
           others_);
}

void GpuTelemetry::add_energy(GpuReading& reading, std::int64_t step, Clock::time_point now) {
  const Sample sample{.time = now,
                      .step = step,
                      .energy_joules = monitor_.energy_joules(),
                      .power_watts = reading.power_watts};
  const auto before = std::exchange(before_, sample);
  if (!before) return;
  if (sample.energy_joules && before->energy_joules) {
    reading.energy_joules = *sample.energy_joules - *before->energy_joules;
  } else {
    const double seconds = std::chrono::duration<double>(now - before->time).count();
    reading.energy_joules = (sample.power_watts + before->power_watts) / 2 * seconds;
  }
  if (step > before->step)
    reading.step_joules = reading.energy_joules / static_cast<double>(step - before->step);
}

std::optional<GpuReading> GpuTelemetry::read(std::int64_t step) {
  const auto now = Clock::now();
  if (!monitor_.is_there() || now < next_) return std::nullopt;
  next_ = now + std::chrono::seconds(1);
  auto reading = monitor_.read();
  if (says_nothing(reading)) return std::nullopt;
  add_energy(reading, step, now);
  for (const auto& cause : reading.slowed_by)
    if (warned_of_.insert(cause).second)
      log_own_warning(
          "the clocks of ", name_, " are throttled by ", cause, state(reading),
          ": tokens/s and MFU drop, and no setting of the run fixes it; see `nvidia-smi -q -d "
          "PERFORMANCE,TEMPERATURE,POWER`");
  return reading;
}

}  // namespace lockstep
