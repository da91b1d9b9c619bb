// The peak FLOP/s of all devices of a run, which MFU is relative to.
#pragma once

#include <span>

#include "core/function_ref.h"
#include "core/stream.h"
#include "dist/comms.h"
#include "train/config.h"
#include "train/observe/meter.h"
#include "train/run/train_options.h"

namespace lockstep {

// Configuration of the meter with the peak of all ranks' devices. A CPU's peak is measured. A GPU's
// comes from a table; the sum is 0 if a GPU is not in it. Collective.
//   later: phases of the run, for the ETA
Meter::Config meter_config(const Config& config, Stream& compute, World& world,
                           std::span<const RunPhase> later);
// Measures the peak of the CPUs again. Collective.
double measured_peak_flops(const Config& config, Stream& compute, World& world);
// The same for planned hosts. `peak_flops` returns the matmul FLOP/s of all ranks in a type.
Meter::Config meter_config(const Config& config, Device device,
                           FunctionRef<double(DType dtype)> peak_flops);

}  // namespace lockstep
