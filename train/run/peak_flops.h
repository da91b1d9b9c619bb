// What MFU is divided by: the peaks of all that a run computes on.
#pragma once

#include "core/function_ref.h"
#include "core/stream.h"
#include "dist/comms.h"
#include "train/config.h"
#include "train/observe/meter.h"

namespace lockstep {

// With the peak of what all ranks run on: of a processor measured, of a GPU known; 0 where one is
// not in the table. All ranks at once.
Meter::Config meter_config(const Config& config, Stream& compute, World& world);
// The peak of processors alone, measured again. All ranks at once.
double measured_peak_flops(const Config& config, Stream& compute, World& world);
// Of a machine that is not here: of all ranks together, FLOP/s of products of a type.
Meter::Config meter_config(const Config& config, Device device,
                           FunctionRef<double(DType dtype)> peak_flops);

}  // namespace lockstep
