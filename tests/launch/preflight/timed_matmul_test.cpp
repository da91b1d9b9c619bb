#include "launch/preflight/timed_matmul.h"

#include "tests/launch/preflight/preflight_rig.h"

namespace lockstep::testing::timed_product_test {

// Computed by hand for small_run(1): most FLOPs are in gate and up (2 x 128 columns) and in the
// head (256 rows). Each has a forward matmul, and backward ones for inputs and weights, of 64
// tokens.
TEST(TimedMatmul, shapes_are_those_with_most_flops_of_a_step) {
  const Config config = small_run(1, 1);
  Stream compute(Device{}, "compute");
  const auto shapes = matmul_shapes(&config, compute, pretend_hosts({1}), 0);
  ASSERT_EQ(shapes.size(), 6u);
  for (const MatmulShape& shape : {MatmulShape{1024, 1024, 1024, DType::fp32},
                                   {1024, 1024, 1024, DType::bf16},
                                   {64, 256, 64, DType::fp32},
                                   {64, 64, 256, DType::fp32},
                                   {256, 64, 64, DType::fp32}})
    EXPECT_NE(std::find(shapes.begin(), shapes.end(), shape), shapes.end())
        << shape.M << " x " << shape.N << " x " << shape.K;
}

}  // namespace lockstep::testing::timed_product_test
