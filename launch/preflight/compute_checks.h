// Checks of a rank alone: its processors or its GPU, and the memory of both.
#pragma once

#include <span>

#include "core/system/gpu_monitor.h"
#include "launch/preflight/preflight_rank.h"
#include "launch/preflight/timed_product.h"

namespace lockstep {

// Each shape for some tenths of a second, and whether its bits are the same each time. Then what
// the rank had meanwhile: of processors their time, of a GPU (`monitor`) its clock. Returns the
// best rate of each type: fp32, bf16.
struct ProductRates {
  double fp32 = 0, bf16 = 0;
};
ProductRates check_products(PreflightRank& rank, std::span<const ProductShape> shapes,
                            const GpuMonitor* monitor);

// Bytes a second, read and written, of a copy within the device's memory.
double check_memory(PreflightRank& rank);
// Of a copy from pinned memory of the host, and back: the slower one.
double check_host_copies(PreflightRank& rank);

// Seconds that the host needs to give a GPU a call; 0 without one.
double launch_seconds(Stream& compute);

}  // namespace lockstep
