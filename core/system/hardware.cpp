#include "core/system/hardware.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::int64_t gib(double count) {
  return static_cast<std::int64_t>(count * (1 << 30));
}

// Sources of the members. [A]: measured by Microsoft on its hosts with A100, H200 and GB200
// (github.com/Azure/AI-benchmarking-guide, Azure_Results).
//   flops, hbm_bytes_per_second   NVIDIA's data sheets (A100; H100; H200; HGX B200; GB200 NVL72),
//               half of rates with sparsity. B200: from the bus and clock that its driver reports
//               (pytorch/ao, pull request 4002), below the data sheet's 8 TB/s.
//   multiprocessors, hbm_bytes    as drivers report them; the allocatable memory is slightly less
//               than the data sheet's GB ("total capacity" in PyTorch's messages)
//   nvlink      a ring by nccl-tests: 231 of 300 GB/s on A100 [A], 370 of 450 on H100
//               (NVIDIA/nccl-tests, issue 212), 680 of 900 on GB200 [A]; the same on B200
//   nic         46 GB/s of 400 Gbit/s per GPU: NCCL's maintainers expect 46 to 48
//               (NVIDIA/nccl-tests, issue 290); half for A100's 200 (they expect 24: issue 119)
//   host        A100 25 of PCIe 4.0's 31.5 GB/s ([A]: 26), H100 55 of 5.0's 63 ([A]: 52 on H200),
//               GB200 193 of NVLink-C2C's 450 [A]
//   sustained, power, slowdown    A100, H100, H200: fitted to published throughputs
//               (docs/planning.md). Under a lower power cap the rate falls as cap ^ 0.885 (fitted;
//               GB300: 0.93 to 1.2, facebookexperimental/triton, pull request 2023). GB200's
//               sustained: matmuls of 8192 in fp8 [A]. Others: assumed from similar GPUs.
Hardware a100() {
  return {.name = "NVIDIA A100",
          .architecture = GpuArchitecture::ampere,
          .bf16_flops = 312e12,
          .fp8_flops = 0,
          .fp32_flops = 19.5e12,
          .multiprocessors = 108,
          .hbm_bytes_per_second = 2.04e12,
          .hbm_bytes = gib(79.1),
          .nvlink_bytes_per_second = 230e9,
          .nic_bytes_per_second = 23e9,
          .host_bytes_per_second = 25e9,
          .domain_ranks = 8,
          .sustained = 0.839,
          .power = 1,
          .slowdown = 0.2};
}

Hardware a100_40g() {
  Hardware gpu = a100();
  gpu.name = "NVIDIA A100-SXM4-40GB";
  gpu.hbm_bytes_per_second = 1.555e12;
  gpu.hbm_bytes = gib(39.4);
  return gpu;
}

Hardware h100() {
  return {.name = "NVIDIA H100",
          .architecture = GpuArchitecture::hopper,
          .bf16_flops = 989.4e12,
          .fp8_flops = 1978.9e12,
          .fp32_flops = 67e12,
          .multiprocessors = 132,
          .hbm_bytes_per_second = 3.35e12,
          .hbm_bytes = gib(79.1),
          .nvlink_bytes_per_second = 370e9,
          .nic_bytes_per_second = 46e9,
          .host_bytes_per_second = 55e9,
          .domain_ranks = 8,
          .sustained = 0.745,
          .power = 1,
          .slowdown = 0.714};
}

// H100 with 96 GB of HBM2e and a cap of 500 W, as Meta uses it (torchtitan's benchmarks). No driver
// reports this name.
Hardware h100_500w() {
  Hardware gpu = h100();
  gpu.name = "NVIDIA H100 at 500 W";
  gpu.hbm_bytes_per_second = 2.4e12;
  gpu.hbm_bytes = gib(95.0);
  gpu.power = 0.742;
  gpu.sustained *= gpu.power;
  return gpu;
}

Hardware h100_pcie() {  // 350 W; pairs of bridged cards
  Hardware gpu = h100();
  gpu.name = "NVIDIA H100 PCIe";
  gpu.bf16_flops = 756e12;
  gpu.fp8_flops = 1513e12;
  gpu.fp32_flops = 51e12;
  gpu.multiprocessors = 114;
  gpu.hbm_bytes_per_second = 2.0e12;
  gpu.nvlink_bytes_per_second = 230e9;
  gpu.nic_bytes_per_second = 23e9;
  gpu.domain_ranks = 2;
  gpu.power = 0.542;
  gpu.sustained *= gpu.power * 989.4 / 756;
  return gpu;
}

Hardware h200() {
  Hardware gpu = h100();
  gpu.name = "NVIDIA H200";
  gpu.hbm_bytes_per_second = 4.8e12;
  gpu.hbm_bytes = gib(139.7);
  return gpu;
}

Hardware b200() {
  return {.name = "NVIDIA B200",
          .architecture = GpuArchitecture::blackwell,
          .bf16_flops = 2250e12,
          .fp8_flops = 4500e12,
          .fp32_flops = 75e12,
          .multiprocessors = 148,
          .hbm_bytes_per_second = 7.7e12,
          .hbm_bytes = gib(178.3),
          .nvlink_bytes_per_second = 680e9,
          .nic_bytes_per_second = 46e9,
          .host_bytes_per_second = 55e9,
          .domain_ranks = 8,
          .sustained = 0.70,
          .power = 1,
          .slowdown = 0.714};
}

Hardware gb200() {
  Hardware gpu = b200();
  gpu.name = "NVIDIA GB200";
  gpu.bf16_flops = 2500e12;
  gpu.fp8_flops = 5000e12;
  gpu.fp32_flops = 80e12;
  gpu.multiprocessors = 152;
  gpu.hbm_bytes_per_second = 8.0e12;
  gpu.hbm_bytes = gib(184.3);
  gpu.host_bytes_per_second = 193e9;
  gpu.domain_ranks = 72;
  gpu.sustained = 0.67;
  return gpu;
}

// Names of drivers that differ from the names here.
struct DriverName {
  std::string_view driver, here;
};
constexpr std::array<DriverName, 3> kDriverNames{{{"NVIDIA A100-SXM4-80GB", "NVIDIA A100"},
                                                  {"NVIDIA A100-SXM-80GB", "NVIDIA A100"},
                                                  {"NVIDIA H100 80GB HBM3", "NVIDIA H100"}}};

}  // namespace

int capability_of(GpuArchitecture architecture) {
  constexpr std::array kCapabilities{80, 90, 100};
  return kCapabilities[static_cast<std::size_t>(architecture)];
}

GpuArchitecture architecture_of(int capability) {
  for (const auto one : {GpuArchitecture::blackwell, GpuArchitecture::hopper})
    if (capability >= capability_of(one)) return one;
  return GpuArchitecture::ampere;
}

double Hardware::peak_flops(DType dtype) const {
  if (dtype == DType::fp32) return fp32_flops;
  return dtype == DType::bf16 ? bf16_flops : fp8_flops;
}

std::span<const Hardware> known_hardware() {
  static const std::array known{a100_40g(), a100(), h100_pcie(), h100_500w(),
                                h100(),     h200(), gb200(),     b200()};
  return known;
}

const Hardware* find_hardware(std::string_view gpu) {
  const auto named = std::ranges::find(kDriverNames, gpu, &DriverName::driver);
  if (named != kDriverNames.end()) gpu = named->here;
  const auto found = std::ranges::find(known_hardware(), gpu, &Hardware::name);
  return found == known_hardware().end() ? nullptr : &*found;
}

double gpu_peak_flops(std::string_view gpu, DType dtype) {
  const Hardware* found = find_hardware(gpu);
  return found == nullptr ? 0 : found->peak_flops(dtype);
}

}  // namespace lockstep
