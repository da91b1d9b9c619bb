// CUDA_CHECK(call) throws Error with the call, CUDA's error text and the host name. The few files
// that call CUDA include it after <cuda_runtime_api.h>.
#pragma once

#include "core/error.h"

namespace lockstep {

// `error` is a cudaError_t other than cudaSuccess.
[[noreturn]] void fail_cuda(int error, const char* call, const char* file, int line);

}  // namespace lockstep

#define CUDA_CHECK(...)                                                                      \
  do {                                                                                       \
    if (const auto cuda_error = (__VA_ARGS__); cuda_error != cudaSuccess)                    \
      ::lockstep::fail_cuda(static_cast<int>(cuda_error), #__VA_ARGS__, __FILE__, __LINE__); \
  } while (0)
