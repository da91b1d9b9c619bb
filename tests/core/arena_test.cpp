#include "core/arena.h"

#include <cstring>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Arena, tensors_are_aligned_and_disjoint) {
  Arena arena(Device{}, Arena::Memory::host, 1 << 16);
  const auto a = arena.allocate("a", DType::bf16, {3, 5});
  const auto b = arena.allocate("b", DType::fp32, {7});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data) % 256, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data) % 256, 0u);
  EXPECT_GE(b.data - a.data, a.bytes());
  std::memset(a.data, 1, static_cast<std::size_t>(a.bytes()));
  std::memset(b.data, 2, static_cast<std::size_t>(b.bytes()));
  EXPECT_EQ(static_cast<int>(a.data[a.bytes() - 1]), 1);
}

TEST(Arena, a_scope_gives_back_and_the_peak_stays) {
  Arena arena(Device{}, Arena::Memory::host, 1 << 20);
  arena.allocate("kept", DType::uint8, {1000});
  const auto used = arena.used_bytes();
  {
    const Arena::Scope scope(arena);
    arena.allocate("scratch", DType::uint8, {100000});
  }
  EXPECT_EQ(arena.used_bytes(), used);
  EXPECT_GE(arena.peak_bytes(), 101000);
}

TEST(Arena, what_does_not_fit_is_refused_with_the_largest_names) {
  Arena arena(Device{}, Arena::Memory::host, 1 << 20);
  arena.allocate("activations", DType::uint8, {900000});
  try {
    arena.allocate("logits", DType::fp32, {100000});
    FAIL() << "400 kB fitted into 148 kB";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("logits [100000]"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("activations"), std::string::npos) << e.what();
  }
}

TEST(Arena, measuring_counts_the_same_bytes_without_memory) {
  Arena real(Device{}, Arena::Memory::host, 1 << 22);
  Arena measured = Arena::measure(Device{});
  for (Arena* arena : {&real, &measured}) {
    arena->allocate("x", DType::fp32, {123, 45});
    const Arena::Scope scope(*arena);
    arena->allocate("y", DType::bf16, {6789});
  }
  EXPECT_EQ(real.peak_bytes(), measured.peak_bytes());
  const auto huge = measured.allocate("huge", DType::fp32, {std::int64_t{1} << 35});
  EXPECT_EQ(huge.bytes(), std::int64_t{1} << 37);
  EXPECT_DEATH(std::memset(huge.data, 0, 1), "");
}

}  // namespace
}  // namespace lockstep
