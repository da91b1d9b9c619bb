// launch() is the only way to start a kernel.
#pragma once

#include <utility>

#include <cuda_runtime.h>

#include "core/cuda_check.h"
#include "core/stream.h"

namespace lockstep {

struct Launch {
  dim3 grid, block;
  std::int64_t shared_bytes = 0;  // dynamic; launch() requests more than 48 KiB if needed
};

// Returns the most dynamic shared memory of a block on the stream's GPU:
//   227 KiB with compute capability 9.0 or 10.0, 163 with 8.0, 99 with 8.6, 8.9 or 12.0
inline std::int64_t most_shared_bytes(const Stream& stream) {
  int bytes = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                    stream.device().index));
  return bytes;
}

// Enqueues kernel<<<...>>>(arguments...) on `stream`; nothing if the grid is empty.
template <class... Parameters, class... Arguments>
void launch(Stream& stream, const Launch& shape, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  if (shape.shared_bytes > 48 << 10)
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shape.shared_bytes)));
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = stream.native();
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace lockstep
