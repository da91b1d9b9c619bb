#include "kernels/matmul_algorithms.h"

#include "kernels/dispatch.h"

namespace lockstep {

std::int64_t cublaslt_version() {
  LOCKSTEP_DISPATCH_CUDA(cublaslt_version());
}

ChosenAlgorithms choose_matmul_algorithms(Stream& stream,
                                          [[maybe_unused]] const MatmulAlgorithms& recorded,
                                          [[maybe_unused]] FunctionRef<void()> run,
                                          [[maybe_unused]] int held) {
  LOCKSTEP_CHECK(stream.is_cuda() && !stream.is_measuring(), "stream ", stream.name(),
                 " has no matmuls to choose algorithms for");
  LOCKSTEP_DISPATCH_CUDA(choose_matmul_algorithms(stream, recorded, run, held));
}

}  // namespace lockstep
