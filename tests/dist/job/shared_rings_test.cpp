#include "dist/job/shared_rings.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tests/dist/socket_ranks.h"

namespace lockstep::testing::shared_rings_test {

constexpr std::size_t kRing = 4096;

struct Pair {
  Descriptor memory = SharedRings::create(kRing);
  SharedRings zero{memory, kRing, 0}, one{memory, kRing, 1};
};

std::vector<std::byte> numbers(std::size_t count, std::size_t first) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>((first + i) % 251);
  return bytes;
}

TEST(SharedRings, carry_bytes_in_both_directions_in_order) {
  Pair pair;
  std::size_t written = 0, read = 0;
  for (const std::size_t count : {1000U, 4000U, 3000U, 4096U, 1U, 0U, 2500U}) {  // around the end
    written += pair.zero.write(numbers(count, written));
    EXPECT_LE(written - read, kRing);
    std::vector<std::byte> out(2000);
    const auto got = pair.one.read(out);
    out.resize(got);
    EXPECT_EQ(out, numbers(got, read));
    read += got;
  }
  EXPECT_GT(read, 2 * kRing);
  std::vector<std::byte> nothing(1);
  EXPECT_EQ(pair.zero.read(nothing), 0U) << "the other direction is empty";
  EXPECT_EQ(pair.one.write(numbers(5000, 0)), kRing) << "and has room";
}

TEST(SharedRings, end_with_their_descriptors_and_maps) {
  {
    const Pair pair;
    EXPECT_TRUE(has_rings());
  }
  EXPECT_FALSE(has_rings());
}

TEST(SharedRings, a_sleeping_side_is_woken_once_and_by_its_event) {
  Pair pair;
  EXPECT_FALSE(pair.zero.other_sleeps_until(SharedRings::kData));
  pair.one.sleep_until(SharedRings::kData);
  EXPECT_FALSE(pair.zero.other_sleeps_until(SharedRings::kSpace));
  EXPECT_TRUE(pair.zero.other_sleeps_until(SharedRings::kData));
  EXPECT_FALSE(pair.zero.other_sleeps_until(SharedRings::kData));
  pair.one.sleep_until(SharedRings::kData | SharedRings::kSpace);
  pair.one.sleep_until(0);
  EXPECT_FALSE(pair.zero.other_sleeps_until(SharedRings::kSpace));
}

TEST(SharedRings, damaged_memory_is_an_error) {
  for (const std::size_t word : {0U, 8U}) {  // bytes written and read by side 0
    Pair pair;
    void* const mapped =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, pair.memory.number(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    static_cast<std::uint64_t*>(mapped)[word] = 2 * kRing;
    std::vector<std::byte> out(1);
    if (word == 0)
      EXPECT_THROW(pair.one.read(out), DataError);
    else
      EXPECT_THROW(pair.one.write(out), DataError);
    munmap(mapped, 4096);
  }
  const auto other = SharedRings::create(2 * kRing);
  EXPECT_THROW(SharedRings(other, kRing, 0), DataError);
}

}  // namespace lockstep::testing::shared_rings_test
