#include "launch/device.h"

#include "core/error.h"

namespace lockstep {

Device device_of(const std::string& name) {
  if (name == "cpu") return {};
  if (name == "cuda")
    throw ConfigError("--device cuda: this build has no CUDA backend; use --device cpu");
  throw UsageError(str("--device ", name, ": expected cpu or cuda"));
}

}  // namespace lockstep
