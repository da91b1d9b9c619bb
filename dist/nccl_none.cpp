// A build without NCCL.
#include "dist/nccl_world.h"

namespace lockstep {

bool has_nccl() {
  return false;
}

std::string nccl_in_words() {
  return "";
}

std::unique_ptr<World> make_nccl_world(World& /*host*/, Device /*device*/,
                                       std::chrono::milliseconds /*patience*/) {
  throw ConfigError(
      "this lockstep was built without NCCL, which ranks on several GPUs need; install "
      "libnccl-dev, and configure the build again");
}

}  // namespace lockstep
