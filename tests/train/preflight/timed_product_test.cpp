#include "train/preflight/timed_product.h"

#include "tests/train/preflight/preflight_rig.h"

namespace lockstep::testing::timed_product_test {

// Of tiny_config(), by hand: most FLOPs are in q, k and v together (3 x 64 columns), and in gate
// and up (2 x 96): forward, and backward for inputs and weights, of 32 tokens.
TEST(TimedProduct, shapes_are_those_that_a_step_spends_most_on) {
  const Config config = tiny_config();
  Stream compute(Device{}, "compute");
  const auto shapes = product_shapes(&config, compute, pretend_hosts({1}), 0);
  ASSERT_EQ(shapes.size(), 6u);
  for (const ProductShape& shape : {ProductShape{1024, 1024, 1024, DType::fp32},
                                    {1024, 1024, 1024, DType::bf16},
                                    {32, 192, 64, DType::fp32},
                                    {32, 64, 192, DType::fp32},
                                    {192, 64, 32, DType::fp32}})
    EXPECT_NE(std::find(shapes.begin(), shapes.end(), shape), shapes.end())
        << shape.M << " x " << shape.N << " x " << shape.K;
}

}  // namespace lockstep::testing::timed_product_test
