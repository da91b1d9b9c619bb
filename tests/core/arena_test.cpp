#include "core/arena.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <limits>
#include <set>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "tests/wording.h"

namespace lockstep::testing::arena_test {

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

TEST(Arena, a_scope_frees_memory_and_the_peak_stays) {
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

TEST(Arena, an_allocation_that_does_not_fit_is_an_error_with_the_largest_names) {
  Arena arena(Device{}, Arena::Memory::host, 1 << 20);
  arena.allocate("activations", DType::uint8, {900000});
  expect_refusal<Error>("core/arena", "what does not fit", {"logits [100000]", "activations"},
                        [&] { arena.allocate("logits", DType::fp32, {100000}); });
}

// A layout search measures on several threads, with two arenas each.
TEST(Arena, many_arenas_measure_at_different_addresses) {
  std::vector<Arena> arenas;
  std::set<std::byte*> first;
  for (int i = 0; i < 100; ++i)
    arenas.push_back(Arena::measure(Device{}));
  for (Arena& arena : arenas)
    first.insert(arena.allocate("t", DType::uint8, {std::int64_t{1} << 43}).data);
  EXPECT_EQ(first.size(), arenas.size());
  EXPECT_EQ(arenas.back().peak_bytes(), std::int64_t{1} << 43);
}

// Limits the address space of this process to `bytes` more than it uses now.
void leave_addresses(std::int64_t bytes) {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit{static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + bytes), RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
}

TEST(Arena, measuring_ignores_ulimit_v) {
  const auto measure = [] {
    leave_addresses(4 << 20);
    const Arena device = Arena::measure(Device{}), pinned = Arena::measure(Device{});
    _exit(device.capacity_bytes() == std::int64_t{1} << 44 ? 0 : 1);
  };
  EXPECT_EXIT(measure(), ::testing::ExitedWithCode(0), "");
}

TEST(Arena, memory_beyond_ulimit_v_is_an_error_with_the_limit) {
  const auto reserve = [] {
    leave_addresses(std::int64_t{1} << 30);
    try {
      const Arena arena(Device{}, Arena::Memory::host, std::int64_t{1} << 40);
    } catch (const ConfigError& error) {
      std::cerr << error.what();
      _exit(3);
    }
    _exit(0);
  };
  EXPECT_EXIT(reserve(), ::testing::ExitedWithCode(3), "`ulimit -v`");
}

TEST(Arena, an_invalid_shape_is_rejected_and_takes_no_memory) {
  Arena arena(Device{}, Arena::Memory::host, 1 << 20);
  arena.allocate("kept", DType::uint8, {1000});
  const auto used = arena.used_bytes();
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const Shape& shape : {Shape{-256}, Shape{2, -1}, Shape{-1, -1}, Shape{most},
                             Shape{most / 2, 3}, Shape{std::int64_t{1} << 62, 4, 4}}) {
    EXPECT_THROW(arena.allocate("t", DType::bf16, shape), Error) << shape;
    EXPECT_EQ(arena.used_bytes(), used) << shape;
  }
  EXPECT_EQ(arena.allocate("none", DType::fp32, {3, 0}).bytes(), 0);
}

TEST(Arena, the_last_tensor_may_end_at_the_end_of_the_arena) {
  Arena arena(Device{}, Arena::Memory::host, 1000);
  EXPECT_THROW(arena.allocate("t", DType::uint8, {1025}), Error);
  arena.allocate("t", DType::uint8, {1000});
}

TEST(Shape, too_many_dimensions_are_rejected) {
  EXPECT_EQ((Shape{1, 2, 3, 4}).elements(), 24);
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), Error);
}

TEST(Arena, debug_builds_poison_memory_that_a_scope_frees) {
#ifdef NDEBUG
  GTEST_SKIP() << "a release build leaves the bytes as they are";
#else
  Arena arena(Device{}, Arena::Memory::host, 1 << 20);
  const auto kept = arena.allocate("kept", DType::uint8, {1000});
  std::memset(kept.data, 1, 1000);
  Tensor scratch;
  {
    const Arena::Scope scope(arena);
    scratch = arena.allocate("scratch", DType::fp32, {3, 1000});
    std::memset(scratch.data, 0, static_cast<std::size_t>(scratch.bytes()));
  }
  for (std::int64_t i = 0; i < scratch.elements(); ++i)
    ASSERT_TRUE(std::isnan(scratch.as<float>()[i])) << i;
  EXPECT_TRUE(std::all_of(kept.data, kept.data + 1000, [](auto b) { return b == std::byte{1}; }));
#endif
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

}  // namespace lockstep::testing::arena_test
