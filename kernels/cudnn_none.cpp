// This file is for builds without cuDNN's frontend. why_no_cudnn() returns this reason, and the
// other functions are not called.
#include "kernels/cudnn.h"

namespace lockstep {

std::string why_no_cudnn() {
  return "this build has no cuDNN; build with -DLOCKSTEP_CUDA=ON where cudnn.h and cuDNN's "
         "frontend "
         "are found";
}
std::string cudnn_version() {
  return {};
}

struct Cudnn::State {};
Cudnn::Cudnn() = default;
Cudnn::~Cudnn() = default;
std::string Cudnn::prepare(Stream& /*stream*/, const CudnnGraph& /*graph*/) {
  return why_no_cudnn();
}
void Cudnn::run(Stream& /*stream*/, const CudnnGraph& /*graph*/, const CudnnTensors& /*tensors*/,
                Tensor /*workspace*/) {
  LOCKSTEP_FAIL(why_no_cudnn());
}

std::string why_no_cudnn_kernels(const CudnnGraph& /*graph*/,
                                 const std::string& /*device_properties*/, int /*capability*/) {
  return why_no_cudnn();
}

}  // namespace lockstep
