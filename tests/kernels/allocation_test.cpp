// Operators allocate nothing: global operator new counts, on every thread, while each runs. Those
// of cases/ are checked there.
#include <gtest/gtest.h>

#include "kernels/adamw.h"
#include "tests/allocations.h"
#include "tests/testing.h"

namespace lockstep::testing::allocation_test {

TEST(Allocation, counts) {
  const auto before = allocations();
  int* volatile p = new int(3);  // volatile, or both calls may be left out
  delete p;
  EXPECT_EQ(allocations() - before, 1);
}

TEST(Allocation, deciding_a_step_allocates_nothing) {
  Bench b;
  const auto one = b.random({1}, DType::fp32), control = b.random({5}, DType::fp32);
  const AdamWScalars scalars{one, b.integers({1}), b.integers({1}), control};
  const auto valid = b.integers({7});
  const auto before = allocations();
  adamw_control(b.stream, scalars, {one, one, valid}, {});
  EXPECT_EQ(allocations() - before, 0);
}

}  // namespace lockstep::testing::allocation_test
