#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "core/stream.h"

namespace lockstep {

// Which of cuBLASLt's algorithms computes each matrix product. They differ in speed, and in the
// order of their sums: so in bits.
struct MatmulAlgorithms {
  std::int64_t cublaslt = 0;  // the version of the library, which alone understands what it chose
  // By product, as kernels/cublas.cu describes it: the bytes of a cublasLtMatmulAlgo_t and
  // their hash, in hex; or "unfused", where a plain product and kernels behind it are faster than
  // its epilogue.
  std::map<std::string, std::string> algorithms;
};

std::int64_t cublaslt_version();  // as in MatmulAlgorithms; of a build with CUDA

struct ChosenAlgorithms {
  struct Measured {
    std::string product;
    std::vector<double> seconds;  // by algorithm, as the heuristics order them; infinite: cannot
  };
  MatmulAlgorithms choices;          // of all products that were asked for
  std::vector<Measured> measured;    // those that were not recorded, or refused
  std::vector<std::string> refused;  // those whose recorded algorithm cuBLASLt does not take
};

// Chooses for the products that `run` asks of `stream`, a CUDA stream, and for no others: what is
// recorded for this version of cuBLASLt and this GPU, or the fastest of its candidates, measured on
// the tensors of `run`, which should not hold zeros. Each is computed many times, so that what
// `run` writes is not its result. Until products are chosen again, those that were not asked for
// take the first candidate. Waits for the stream.
ChosenAlgorithms choose_matmul_algorithms(Stream& stream, const MatmulAlgorithms& recorded,
                                          FunctionRef<void()> run);

namespace cuda {
std::int64_t cublaslt_version();
ChosenAlgorithms choose_matmul_algorithms(Stream& stream, const MatmulAlgorithms& recorded,
                                          FunctionRef<void()> run);
}  // namespace cuda

}  // namespace lockstep
