// This file has no kernel: the stream's cuBLASLt chooses the algorithms.
#include <cublasLt.h>

#include "kernels/cublas.cuh"

namespace lockstep::cuda {

std::int64_t cublaslt_version() {
  return static_cast<std::int64_t>(cublasLtGetVersion());
}

ChosenAlgorithms choose_matmul_algorithms(Stream& stream, const MatmulAlgorithms& recorded,
                                          FunctionRef<void()> run, int held) {
  auto& cublas = stream.kept<Cublas>();
  cublas.begin_choosing(stream.device(), recorded, held);
  run();
  return cublas.end_choosing();
}

}  // namespace lockstep::cuda
