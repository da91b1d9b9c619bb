// Hardware: what a GPU computes and moves at most, and which share of it steps reach: what a step
// is priced with (launch/plan/prices.h), and the peaks that MFU is divided by.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace lockstep {

enum class GpuArchitecture : std::uint8_t { ampere, hopper, blackwell };
int capability_of(GpuArchitecture architecture);  // 90: compute capability 9.0
GpuArchitecture architecture_of(int capability);  // the newest of these that it is not below

// Of one GPU. Rates are dense: NVIDIA's pages print rates with 2:4 sparsity, twice these.
struct Hardware {
  std::string name;
  GpuArchitecture architecture = GpuArchitecture::hopper;
  double bf16_flops = 0, fp8_flops = 0, fp32_flops = 0;  // a second; 0: it has none
  int multiprocessors = 0;
  double hbm_bytes_per_second = 0;  // peak
  std::int64_t hbm_bytes = 0;
  // Payload. nvlink: bus bandwidth of a ring, as nccl-tests print it; nic: of the adapter of this
  // GPU alone; host: of a copy between pinned memory of the host and the GPU.
  double nvlink_bytes_per_second = 0;
  double nic_bytes_per_second = 0;
  double host_bytes_per_second = 0;
  int domain_ranks = 1;  // GPUs that NVLink joins
  // Share of the peak of a product with long K, under the GPU's power cap.
  double sustained = 1;
  // Rate under the power cap, of the rate of this chip at its highest one.
  double power = 1;
  // Seconds of compute lost while a collective as fast as NVLink runs beside it for a second.
  double slowdown = 0;

  // FLOP/s of products of `dtype`: fp32, bf16, or either fp8.
  double peak_flops(DType dtype) const;
};

// Those that are known.
std::span<const Hardware> known_hardware();
// By its name here, or by the driver's, which must be that of this product and no other: cards of
// other rates have longer names ("NVIDIA H100 NVL"), and so have parts of a GPU (MIG). nullptr: not
// known.
const Hardware* find_hardware(std::string_view gpu);

// FLOP/s of products of `dtype`; 0 for a GPU that is not known, and MFU is then not known.
double gpu_peak_flops(std::string_view gpu, DType dtype);

}  // namespace lockstep
