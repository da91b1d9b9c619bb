#include "data/shard_order.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <set>

#include "core/error.h"
#include "tests/allocations.h"

namespace lockstep::testing::shard_order_test {

using Window = std::pair<std::size_t, std::int64_t>;

Window at(const ShardOrder& order, std::int64_t n, std::uint64_t seed = 3) {
  const auto [shard, index] = order.at(seed, n);
  return {shard, index};
}

// Shards of 0 to 99 windows.
std::vector<std::int64_t> uneven_shards(std::size_t shards) {
  std::mt19937_64 random(4);
  std::vector<std::int64_t> windows;
  for (std::size_t i = 0; i < shards; ++i)
    windows.push_back(static_cast<std::int64_t>(random() % 100));
  windows[1] = 0;
  return windows;
}

TEST(ShardOrder, each_epoch_has_each_window_once_in_a_new_order) {
  const auto windows = uneven_shards(37);
  for (const std::int64_t at_once : {1, 2, 5, 37, 1000}) {
    const ShardOrder order(windows, at_once);
    const auto n = order.count();
    ASSERT_EQ(n, std::accumulate(windows.begin(), windows.end(), std::int64_t{0}));
    std::vector<Window> expected;
    for (std::size_t shard = 0; shard < windows.size(); ++shard)
      for (std::int64_t i = 0; i < windows[shard]; ++i)
        expected.emplace_back(shard, i);
    std::vector<Window> before;
    for (const std::int64_t epoch : {0, 1, 2, 1'000'000'000}) {
      std::vector<Window> all;
      for (std::int64_t i = 0; i < n; ++i)
        all.push_back(at(order, epoch * n + i));
      std::int64_t same = 0;
      for (std::size_t i = 0; i < before.size(); ++i)
        same += all[i] == before[i];
      EXPECT_LT(same, 12) << at_once << ": epochs are in one order";
      before = all;
      std::sort(all.begin(), all.end());
      EXPECT_EQ(all, expected) << at_once << " epoch " << epoch;
    }
  }
}

// Any n samples in a row, where n is less than what any K shards have, are of 2 K shards.
TEST(ShardOrder, few_shards_are_read_around_any_sample) {
  constexpr std::int64_t kWindows = 50;
  const std::vector<std::int64_t> windows(64, kWindows);
  for (const std::int64_t at_once : {1, 4, 7}) {
    const ShardOrder order(windows, at_once);
    const auto groups = (64 + at_once - 1) / at_once;
    const auto last_group = 64 - (groups - 1) * at_once;
    for (std::int64_t g = 0; g < 3 * order.count(); g += 17) {
      std::set<std::size_t> shards;
      for (std::int64_t i = g; i < g + last_group * kWindows; ++i)
        shards.insert(at(order, i).first);
      ASSERT_LE(std::ssize(shards), 2 * at_once) << g;
    }
  }
}

// Within a group each tenth draws evenly from its shards, and from each shard's beginning and end.
TEST(ShardOrder, windows_of_a_group_are_shuffled) {
  const std::vector<std::int64_t> windows(40, 1000);
  const ShardOrder order(windows, 10);
  for (std::int64_t group = 0; group < 4; ++group) {
    for (std::int64_t tenth = 0; tenth < 10; ++tenth) {
      std::map<std::size_t, int> of_shard;
      int first_half = 0;
      for (std::int64_t i = 0; i < 1000; ++i) {
        const auto [shard, index] = at(order, 10'000 * group + 1000 * tenth + i);
        ++of_shard[shard];
        first_half += index < 500;
      }
      EXPECT_EQ(of_shard.size(), 10u);
      for (const auto& [shard, count] : of_shard)
        EXPECT_NEAR(count, 100, 50) << shard;  // 5 standard deviations
      EXPECT_NEAR(first_half, 500, 80);
    }
  }
}

TEST(ShardOrder, it_is_a_function_of_seed_and_sample) {
  const auto windows = uneven_shards(20);
  const ShardOrder a(windows, 3), b(windows, 3);
  std::mt19937_64 random(5);
  int same = 0;
  for (int i = 0; i < 2000; ++i) {                             // jumps between epochs and seeds
    const auto near = i % 2 == 0 ? 2'000 : 1'000'000'000'000;  // often of one epoch
    const auto n = (static_cast<std::int64_t>(random()) & 0x7fffffffffffffff) % near;
    const auto seed = random() % 3;
    ASSERT_EQ(at(a, n, seed), at(ShardOrder(windows, 3), n, seed));
    same += at(a, n, seed) == at(b, n, seed + 1);
  }
  EXPECT_LT(same, 30);
  EXPECT_THROW(a.at(1, -1), Error);
  EXPECT_THROW(ShardOrder({0, 0}, 1), Error);
  EXPECT_THROW(ShardOrder({1}, 0), Error);
}

TEST(ShardOrder, the_shards_ahead_are_the_next_ones) {
  const auto windows = uneven_shards(30);
  const ShardOrder order(windows, 4);
  for (std::int64_t n = 0; n < 2 * order.count(); n += 13) {
    const auto ahead = order.shards_ahead(3, n, 12);
    ASSERT_EQ(ahead.size(), 12u);
    EXPECT_EQ(std::set(ahead.begin(), ahead.end()).size(), ahead.size());
    // All that come before more than eight distinct ones are among the next twelve.
    std::set<std::size_t> seen;
    for (auto i = n; seen.size() < 8; ++i) {
      seen.insert(at(order, i).first);
      ASSERT_NE(std::find(ahead.begin(), ahead.end(), at(order, i).first), ahead.end()) << n;
    }
  }
  EXPECT_EQ(
      order.shards_ahead(3, 0, 1000).size(),
      windows.size() - static_cast<std::size_t>(std::count(windows.begin(), windows.end(), 0)));
}

TEST(ShardOrder, the_end_of_an_epoch_allocates_nothing) {
  const ShardOrder order(uneven_shards(50), 4);
  at(order, 0);
  const auto before = allocations();
  for (std::int64_t n = 0; n < 5 * order.count(); ++n)
    order.at(3, n);
  EXPECT_EQ(allocations(), before);
}

}  // namespace lockstep::testing::shard_order_test
