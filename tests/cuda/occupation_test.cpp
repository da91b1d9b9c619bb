#include "kernels/occupation.cuh"

#include <chrono>
#include <thread>

#include "core/gpu.h"
#include "kernels/elementwise.h"
#include "tests/cuda/twins.h"

namespace lockstep::testing::occupation_test {

struct OccupationCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, OccupationCuda, ::testing::Values(DType::fp32), dtype_name);

TEST_P(OccupationCuda, multiprocessors_run_no_other_kernel_until_the_end) {
  using std::chrono::steady_clock;
  Twins t(1);
  const auto x = t.random({256}, GetParam());
  fill(t.stream(), x.device, 1.0f);  // loads the code
  t.stream().synchronize();
  const auto begin = steady_clock::now();
  Occupation all({Device::Kind::cuda, 0}, gpu::properties(0).multiprocessors);
  all.begin();
  fill(t.stream(), x.device, 2.0f);
  const Event filled = t.stream().record();
#ifndef LOCKSTEP_SIMT  // there the kernel has ended when its launch returns
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(filled.is_done());
#endif
  all.end();
  filled.synchronize();
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));  // told, not by the deadline
  EXPECT_EQ(doubles(t.download(x.device)), Doubles(256, 2));
}

}  // namespace lockstep::testing::occupation_test
