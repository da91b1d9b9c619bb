// Tests of arenas in GPU memory.
#include "core/arena.h"

#include <gtest/gtest.h>

namespace lockstep::arena_test {

TEST(ArenaCuda, of_zero_bytes_gives_an_address_to_empty_tensors) {
  for (const auto memory : {Arena::Memory::device, Arena::Memory::pinned_host}) {
    Arena arena({Device::Kind::cuda, 0}, memory, 0);
    EXPECT_EQ(arena.capacity_bytes(), 0);
    EXPECT_NE(arena.allocate("nothing", DType::fp32, {0, 3}).data, nullptr);
    EXPECT_THROW(arena.allocate("something", DType::fp32, {1}), Error);
  }
}

}  // namespace lockstep::arena_test
