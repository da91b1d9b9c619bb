#include "core/gpu.h"

#include <gtest/gtest.h>

namespace lockstep::gpu::gpu_test {

TEST(Gpu, code_of_an_architecture_runs_on_later_minor_versions) {
  EXPECT_TRUE(covers("80", 8, 0));
  EXPECT_TRUE(covers("80", 8, 9));
  EXPECT_FALSE(covers("86", 8, 0));
  EXPECT_FALSE(covers("80", 9, 0));
  EXPECT_FALSE(covers("90", 10, 0));
  EXPECT_TRUE(covers("100f", 10, 3));
  EXPECT_FALSE(covers("100f", 12, 0));
}

TEST(Gpu, code_with_the_features_of_one_gpu_runs_on_that_one_alone) {
  EXPECT_TRUE(covers("90a", 9, 0));
  EXPECT_FALSE(covers("90a", 10, 0));
  EXPECT_TRUE(covers("100a", 10, 0));
  EXPECT_FALSE(covers("100a", 10, 3));
  EXPECT_FALSE(covers("100a", 9, 0));
}

TEST(Gpu, one_of_several_architectures_is_enough) {
  EXPECT_TRUE(covers("80;100a", 8, 0));
  EXPECT_TRUE(covers("80;100a", 10, 0));
  EXPECT_FALSE(covers("80;100a", 9, 0));
  EXPECT_FALSE(covers("", 9, 0));
}

}  // namespace lockstep::gpu::gpu_test
