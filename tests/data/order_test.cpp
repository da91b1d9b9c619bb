#include "data/order.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <vector>

#include "core/error.h"
#include "core/mix.h"

namespace lockstep::order_test {

std::vector<std::int64_t> images(const Permutation& permutation, std::int64_t n) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < n; ++i)
    all.push_back(permutation(i));
  return all;
}

bool is_bijection(std::vector<std::int64_t> all) {
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

// Of the pairs of consecutive images, the share that agree in bit `bit`: 0.5 where they are mixed.
double agreement(const std::vector<std::int64_t>& all, int bit) {
  std::int64_t agree = 0;
  for (std::size_t i = 1; i < all.size(); ++i)
    agree += ((all[i] ^ all[i - 1]) >> bit & 1) == 0;
  return static_cast<double>(agree) / static_cast<double>(all.size() - 1);
}

TEST(Order, every_size_up_to_3000_and_large_ones_are_bijections) {
  for (std::int64_t n = 1; n <= 3000; ++n)
    ASSERT_TRUE(is_bijection(images(Permutation(static_cast<std::uint64_t>(n) * 7, n), n))) << n;
  std::mt19937_64 random(5);
  for (int round = 0; round < 4; ++round) {
    const auto n = static_cast<std::int64_t>(random() % 1'000'000 + 1);
    EXPECT_TRUE(is_bijection(images(Permutation(random(), n), n))) << n;
  }
}

// Too large to list: distinct images of distinct samples, all inside.
TEST(Order, sizes_beyond_32_bits_stay_inside_mix_and_do_not_collide) {
  for (const std::int64_t n : {std::int64_t{1} << 33, (std::int64_t{1} << 40) + 1,
                               std::int64_t{1'000'000'000'039}, std::int64_t{1} << 62}) {
    const Permutation permutation(3, n);
    std::vector<std::int64_t> some;
    int same_half = 0;
    for (std::int64_t i = 0; i < 50'000; ++i) {
      some.push_back(permutation(n / 50'000 * i));
      same_half += (some.back() < n / 2) == (i < 25'000);
    }
    EXPECT_NEAR(same_half, 25'000, 500) << n;  // 4.5 standard deviations
    std::sort(some.begin(), some.end());
    EXPECT_GE(some.front(), 0);
    EXPECT_LT(some.back(), n);
    EXPECT_EQ(std::adjacent_find(some.begin(), some.end()), some.end()) << n;
    EXPECT_GT(some.back(), n / 100 * 99) << "the images do not spread";
  }
}

// 0.001 is 2 standard deviations of a fair coin over 2^20 pairs; the network that this replaces
// (multiply, add, mask) agrees in 0.999 of the pairs. The images of a power of two are balanced
// exactly, so they scatter less.
TEST(Order, neighbours_agree_in_their_lowest_bit_half_of_the_time) {
  for (const std::uint64_t key : {0, 1, 12345}) {
    const auto all = images(Permutation(mix64(key), 1 << 20), 1 << 20);
    EXPECT_NEAR(agreement(all, 0), 0.5, 0.001) << key;
  }
}

// 4 standard deviations (0.002), for each of 20 bits and sizes around a power of two, whose walks
// differ most. The highest bit of 1'000'003 of 2^20 is not fair: 0.502 of the pairs agree.
TEST(Order, neighbours_agree_in_every_bit_half_of_the_time) {
  for (const std::int64_t n : {(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1'000'003}) {
    const auto all = images(Permutation(99, n), n);
    for (int bit = 0; bit < 20; ++bit) {
      double ones = 0;
      for (const auto x : all)
        ones += static_cast<double>(x >> bit & 1) / static_cast<double>(n);
      EXPECT_NEAR(agreement(all, bit), ones * ones + (1 - ones) * (1 - ones), 0.002)
          << n << " bit " << bit;
    }
  }
}

// Each tenth of an epoch holds a tenth of each tenth of the dataset (5 standard deviations).
TEST(Order, each_stretch_of_an_epoch_draws_evenly_from_the_dataset) {
  const std::int64_t n = 1'000'000;
  const auto all = images(Permutation(4, n), n);
  std::array<std::array<int, 10>, 10> count{};
  for (std::int64_t i = 0; i < n; ++i)
    ++count[static_cast<std::size_t>(i * 10 / n)]
           [static_cast<std::size_t>(all[static_cast<std::size_t>(i)] * 10 / n)];
  for (const auto& row : count)
    for (const int c : row)
      EXPECT_NEAR(c, 10'000, 500);
}

// A random pair of permutations of n has 1 place in common on average.
TEST(Order, epochs_and_seeds_give_different_orders) {
  const std::int64_t n = 10'000;
  const auto common = [&](std::uint64_t seed_a, std::int64_t epoch_a, std::uint64_t seed_b,
                          std::int64_t epoch_b) {
    int same = 0;
    for (std::int64_t i = 0; i < n; ++i)
      same += sample_at(seed_a, n, epoch_a * n + i) == sample_at(seed_b, n, epoch_b * n + i);
    return same;
  };
  EXPECT_LT(common(1, 0, 1, 1), 12);
  EXPECT_LT(common(1, 1, 1, 2), 12);
  EXPECT_LT(common(1, 0, 2, 0), 12);
  EXPECT_LT(common(1, 1, 2, 0), 12) << "seed and epoch are mixed up";
  EXPECT_EQ(common(1, 7, 1, 7), n);
}

TEST(Order, the_order_of_a_seed_never_changes) {
  std::vector<std::int64_t> first;
  for (std::int64_t g = 95; g < 105; ++g)
    first.push_back(sample_at(1234, 100, g));
  const std::vector<std::int64_t> expected{80, 90, 49, 99, 0, 54, 37, 96, 52, 50};
  EXPECT_EQ(first, expected);
}

TEST(Order, arguments_out_of_range_are_an_error) {
  EXPECT_THROW(Permutation(0, 0), Error);
  EXPECT_THROW(Permutation(0, 5)(5), Error);
  EXPECT_THROW(Permutation(0, 5)(-1), Error);
  EXPECT_THROW(sample_at(0, 5, -1), Error);
}

}  // namespace lockstep::order_test
