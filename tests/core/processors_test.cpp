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

TEST(Processors, a_list_is_written_and_read_as_the_kernel_does) {
  const std::vector<int> processors{0, 1, 2, 5, 7, 8};
  EXPECT_EQ(processor_list(processors), "0-2,5,7-8");
  EXPECT_EQ(listed_processors("0-2,5,7-8\n"), processors);
  EXPECT_EQ(processor_list({}), "");
  for (const char* none : {"", "\n", "a", "3-1", "1,", "1-", "-1", "0-99999999", "1 2"})
    EXPECT_EQ(listed_processors(none), std::vector<int>{}) << none;
}

}  // namespace
}  // namespace lockstep::testing
