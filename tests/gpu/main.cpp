// main of cuda_tests exits with 77, which counts as skipped, if no GPU can be used.
#include <gtest/gtest.h>
#include <iostream>

#include "core/gpu.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const auto gpus = lockstep::gpu::devices();
  if (gpus.count == 0) {
    std::cout << "skipped: no GPU can be used: " << gpus.why_not << '\n';
    return 77;
  }
  return RUN_ALL_TESTS();
}
