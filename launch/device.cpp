#include "launch/device.h"

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

}  // namespace lockstep
