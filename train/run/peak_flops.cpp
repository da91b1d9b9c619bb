#include "train/run/peak_flops.h"

#include <algorithm>
#include <iomanip>
#include <unistd.h>

#include "core/gpu.h"
#include "core/system/hardware.h"
#include "dist/topology_here.h"
#include "kernels/peak.h"
#include "train/step/memory.h"

namespace lockstep {
namespace {

double peak_flops(Stream& compute, DType dtype) {
  if (compute.is_cuda()) return gpu_peak_flops(gpu::properties(compute.device().index).name, dtype);
  return measure_peak_flops(compute, dtype);
}

// The peak of all ranks on this host, returned by its first rank; the other ranks return 0. One
// rank measures for all, because ranks that share CPU cores would slow each other's measurement.
// Such ranks share the peak of the cores.
double peak_flops_here(Stream& compute, DType dtype, World& world) {
  const auto here = ranks_here(world);
  if (compute.is_cuda()) return peak_flops(compute, dtype);  // each rank has its own GPU
  if (here.front() != world.rank()) return 0;
  const auto ranks = static_cast<double>(here.size());
  const auto processors = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  return peak_flops(compute, dtype) * std::min(ranks, processors / compute.threads());
}

// The sum over all ranks; 0 if a GPU is not in the table.
double peak_flops_of_all(Stream& compute, DType dtype, World& world) {
  double sum = 0;
  const auto here = str(std::setprecision(17), peak_flops_here(compute, dtype, world));
  for (const auto& said : world.exchange(here)) {
    const double peak = std::stod(said);
    if (peak == 0 && compute.is_cuda()) return 0;
    sum += peak;
  }
  return sum;
}

std::vector<Meter::Config::Later> later_costs(const Config& now, std::span<const RunPhase> phases) {
  const auto cost = [](const Config& c) {
    return static_cast<double>(c.train.batch_tokens) *
           flops_per_token(c.model, c.train.sequence_length).causal;
  };
  std::vector<Meter::Config::Later> later;
  for (const auto& phase : phases)
    later.push_back({phase.from_step, cost(phase.config) / cost(now)});
  return later;
}

}  // namespace

Meter::Config meter_config(const Config& c, Stream& compute, World& world,
                           std::span<const RunPhase> later) {
  auto meter = meter_config(c, compute.device(),
                            [&](DType dtype) { return peak_flops_of_all(compute, dtype, world); });
  meter.limit_bytes = all_memory_bytes(compute.device());
  meter.later = later_costs(c, later);
  return meter;
}

double measured_peak_flops(const Config& c, Stream& compute, World& world) {
  return peak_flops_of_all(compute, c.precision.compute, world);
}

Meter::Config meter_config(const Config& c, Device device,
                           FunctionRef<double(DType dtype)> peak_flops) {
  const auto flops = flops_per_token(c.model, c.train.sequence_length);
  // A CPU computes fp8 in the compute type.
  const bool fp8 = c.precision.fp8 != Fp8Matmuls::off && device.kind == Device::Kind::cuda;
  return {.steps = c.train.steps,
          .step_tokens = c.train.batch_tokens,
          .flops_per_token = flops.causal,
          .flops_per_token_square = flops.square,
          .peak_flops = peak_flops(c.precision.compute),
          .fp8_flops_per_token = fp8 ? flops.layer_products : 0,
          .fp8_peak_flops = fp8 ? peak_flops(DType::fp8_e4m3) : 0,
          .device = device};
}

}  // namespace lockstep
