#include "core/processors.h"

#include <gtest/gtest.h>
#include <thread>

namespace lockstep::testing {
namespace {

TEST(Processors, affinity_is_what_it_was_set_to) {
  const auto all = affinity();
  ASSERT_FALSE(all.empty());
  std::thread([&] {
    EXPECT_EQ(affinity(), all);
    set_affinity({&all.back(), 1});
    EXPECT_EQ(affinity(), std::vector<int>{all.back()});
    set_affinity(all);
    EXPECT_EQ(affinity(), all);
  }).join();
}

}  // namespace
}  // namespace lockstep::testing
