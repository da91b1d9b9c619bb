#include "launch/device.h"

#include "core/cpu.h"
#include "core/error.h"
#include "core/gpu.h"

namespace lockstep {

Device device_of(const std::string& name) {
  if (name == "cpu") return {};
  if (name != "cuda" && name != "best")
    throw UsageError(str("--device ", name, ": expected cpu or cuda"));
  const auto gpus = gpu::devices();
  if (gpus.count > 0) return {Device::Kind::cuda, 0};
  if (name == "best") return {};
  throw ConfigError(str("--device cuda: no usable GPU: ", gpus.why_not));
}

DType automatic_precision(const Device& device) {
  constexpr int kAmpere = 8;
  const bool is_fast = device.kind == Device::Kind::cuda
                           ? gpu::properties(device.index).major >= kAmpere
                           : cpu_level() == CpuLevel::avx512_bf16;
  return is_fast ? DType::bf16 : DType::fp32;
}

}  // namespace lockstep
