// Operators allocate nothing: global operator new counts the allocations of all threads while one
// runs. operator_test.cpp checks the operators of cases/.
#include <gtest/gtest.h>

#include "kernels/adamw.h"
#include "tests/allocations.h"
#include "tests/testing.h"

namespace lockstep::testing::allocation_test {

TEST(Allocation, operator_new_is_counted) {
  const auto before = allocations();
  int* volatile p = new int(3);  // volatile, or both calls may be left out
  delete p;
  EXPECT_EQ(allocations() - before, 1);
}

TEST(Allocation, adamw_control_allocates_nothing) {
  Bench b;
  const auto one = b.random({1}, DType::fp32), control = b.random({5}, DType::fp32);
  const AdamWScalars scalars{one, b.integers({1}), b.integers({1}), control};
  const auto valid = b.integers({7});
  const auto before = allocations();
  adamw_control(b.stream, scalars, {one, one, valid}, {});
  EXPECT_EQ(allocations() - before, 0);
}

}  // namespace lockstep::testing::allocation_test
