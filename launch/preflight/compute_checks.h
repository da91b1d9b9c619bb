// Checks of a single rank: its CPU cores or GPU, and their memory.
#pragma once

#include <span>

#include "core/system/gpu_monitor.h"
#include "launch/preflight/preflight_rank.h"
#include "launch/preflight/timed_matmul.h"

namespace lockstep {

// Runs matmuls of each shape for some tenths of a second, and checks that their bits are always the
// same. Then it checks the CPU time that the rank got meanwhile, or the clock of its GPU
// (`monitor`). Returns the best rates in fp32 and bf16.
struct ProductRates {
  double fp32 = 0, bf16 = 0;
};
ProductRates check_products(PreflightRank& rank, std::span<const MatmulShape> shapes,
                            const GpuMonitor* monitor);

// Measures a copy within device memory. Returns bytes per second, reads plus writes.
double check_memory(PreflightRank& rank);
// Measures copies between pinned host memory and the device. Returns the slower direction.
double check_host_copies(PreflightRank& rank);

// Seconds that the host needs to launch a call on a GPU; 0 on CPUs.
double launch_seconds(Stream& compute);

}  // namespace lockstep
