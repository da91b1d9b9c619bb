// What GPUs can multiply and add at most: the dense rates that MFU is divided by. (NVIDIA's pages
// print rates with 2:4 sparsity, twice these.)
#pragma once

#include <array>
#include <string_view>

#include "core/dtype.h"

namespace lockstep {

struct GpuPeak {
  std::string_view name;   // what the driver's name of the GPU begins with
  double bf16, fp8, fp32;  // FLOP/s; 0: it has none
};
inline constexpr std::array kGpuPeaks{
    GpuPeak{"NVIDIA A100", 312e12, 0, 19.5e12},
    GpuPeak{"NVIDIA H100 PCIe", 756e12, 1513e12, 51e12},
    GpuPeak{"NVIDIA H100", 989.4e12, 1978.9e12, 67e12},
    GpuPeak{"NVIDIA H200", 989.4e12, 1978.9e12, 67e12},
    GpuPeak{"NVIDIA GB200", 2500e12, 5000e12, 80e12},
    GpuPeak{"NVIDIA B200", 2250e12, 4500e12, 75e12},
};

// FLOP/s of products of `dtype`; 0 for a GPU that is not in the table, and MFU is then not known.
inline double gpu_peak_flops(std::string_view gpu, DType dtype) {
  for (const auto& peak : kGpuPeaks)
    if (gpu.starts_with(peak.name))
      return dtype == DType::fp32 ? peak.fp32 : dtype == DType::bf16 ? peak.bf16 : peak.fp8;
  return 0;
}

}  // namespace lockstep
