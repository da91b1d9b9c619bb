// Hardware has the peak rates of a GPU, and the fraction of them that steps reach. Plans use it to
// estimate times (launch/plan/time_model.h), and MFU uses the peaks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace lockstep {

enum class GpuArchitecture : std::uint8_t { ampere, hopper, blackwell };
int capability_of(GpuArchitecture architecture);  // 90: compute capability 9.0
GpuArchitecture architecture_of(int capability);  // newest one at or below the capability

// Figures of one GPU. Rates are dense; NVIDIA's pages print rates with 2:4 sparsity, twice as high.
struct Hardware {
  std::string name;
  GpuArchitecture architecture = GpuArchitecture::hopper;
  double bf16_flops = 0, fp8_flops = 0, fp32_flops = 0;  // per second; 0: not supported
  int multiprocessors = 0;
  double hbm_bytes_per_second = 0;  // peak
  std::int64_t hbm_bytes = 0;
  // Payload rates. nvlink: bus bandwidth of a ring, as nccl-tests print it; nic: NIC bandwidth per
  // GPU; host: copy between pinned host memory and the GPU.
  double nvlink_bytes_per_second = 0;
  double nic_bytes_per_second = 0;
  double host_bytes_per_second = 0;
  int domain_ranks = 1;  // GPUs of an NVLink domain
  // Fraction of the peak that a matmul with large K reaches, under the GPU's power cap.
  double sustained = 1;
  // Rate under this power cap, as a fraction of the rate under the chip's highest power cap.
  double power = 1;
  // Seconds of compute lost per second of a concurrent collective at NVLink speed.
  double slowdown = 0;

  // FLOP/s of matmuls of `dtype`: fp32, bf16, or either fp8.
  double peak_flops(DType dtype) const;
};

std::span<const Hardware> known_hardware();
// Finds a GPU by its name here or by its exact driver name; nullptr if unknown. Names match
// exactly, because other cards ("NVIDIA H100 NVL") and parts of a GPU (MIG) have longer names and
// other rates.
const Hardware* find_hardware(std::string_view gpu);

// FLOP/s of matmuls of `dtype`; 0 for an unknown GPU, whose MFU is unknown.
double gpu_peak_flops(std::string_view gpu, DType dtype);

}  // namespace lockstep
