#include "core/philox.h"

#include <gtest/gtest.h>

namespace lockstep::philox_test {

// Known answers of Random123 (kat_vectors, philox4x32-10).
TEST(Philox, equals_the_published_vectors) {
  EXPECT_EQ(philox(0, 0, 0), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, uniforms_are_inside_the_open_interval) {
  EXPECT_GT(uniform_open(0), 0.0f);
  EXPECT_LT(uniform_open(~0u), 1.0f);
}

}  // namespace lockstep::philox_test
