#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "core/stream.h"

namespace lockstep {

// MatmulAlgorithms holds which of cuBLASLt's algorithms computes each matmul. Algorithms differ in
// speed and in the order of their sums, and so in bits.
struct MatmulAlgorithms {
  std::int64_t cublaslt = 0;  // version of the library; no other version reads its algorithms
  // Maps a matmul, as named by kernels/cublas.cu, to the bytes of a cublasLtMatmulAlgo_t and their
  // hash, in hex. "@N" after it: cuBLASLt chooses tiles and blocks for N multiprocessors. The value
  // is "unfused" if a plain matmul and kernels after it are faster than its epilogue.
  std::map<std::string, std::string> algorithms;
};

std::int64_t cublaslt_version();  // as in MatmulAlgorithms; needs a build with CUDA

struct ChosenAlgorithms {
  struct Measured {
    std::string product;
    // One time for each algorithm, in the order of the heuristics: first those for all
    // multiprocessors, then those for the ones that are not held. Infinite if the algorithm fails.
    std::vector<double> seconds;
  };
  MatmulAlgorithms choices;          // of all requested matmuls
  std::vector<Measured> measured;    // matmuls that were not recorded, or whose record was rejected
  std::vector<std::string> refused;  // matmuls whose recorded algorithm cuBLASLt rejects
};

// Chooses an algorithm for each matmul that `run` requests of `stream`, a CUDA stream, and for no
// others. It takes the algorithm that is recorded for this version of cuBLASLt and this GPU.
// Otherwise it takes the fastest candidate, measured on the tensors of `run`, which should not hold
// zeros. Each matmul is computed many times, so that `run` writes wrong results. Until the next
// choice, matmuls that were not requested take the first candidate. Waits for the stream.
//   held  multiprocessors that other kernels hold beside the matmuls, such as those of NCCL. Then
//         algorithms that leave them are candidates too, and all are measured while a kernel holds
//         as many. 0, or as many as the GPU has: all matmuls use the whole GPU
ChosenAlgorithms choose_matmul_algorithms(Stream& stream, const MatmulAlgorithms& recorded,
                                          FunctionRef<void()> run, int held = 0);

namespace cuda {
std::int64_t cublaslt_version();
ChosenAlgorithms choose_matmul_algorithms(Stream& stream, const MatmulAlgorithms& recorded,
                                          FunctionRef<void()> run, int held);
}  // namespace cuda

}  // namespace lockstep
