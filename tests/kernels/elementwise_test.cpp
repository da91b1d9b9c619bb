#include "kernels/elementwise.h"

#include <gtest/gtest.h>
#include <numbers>

#include "tests/testing.h"

namespace lockstep::testing::elementwise_test {

// Around the sizes of vectors, blocks and pieces of threads.
constexpr std::int64_t kSizes[] = {1, 15, 16, 17, 63, 65, 1000, 16384, 70001};

class Elementwise : public ::testing::TestWithParam<DType> {};

TEST_P(Elementwise, convert_rounds_once_or_copies) {
  for (const auto size : kSizes)
    for (const auto type : {DType::fp32, DType::bf16}) {
      Bench b;
      const auto x = b.random({size}, GetParam()), y = b.poisoned({size}, type);
      convert(b.stream, y, x);
      for (std::int64_t i = 0; i < size; ++i) {
        const auto value = static_cast<float>(get(x, i));
        ASSERT_EQ(get(y, i), type == DType::bf16 ? to_float(to_bf16(value)) : value) << i;
      }
    }
}

TEST(ElementwiseContract, fill_integer_is_exact_where_floats_have_gaps) {
  Bench b;
  const auto t = b.integers({0, 0, 0});
  fill_integer(b.stream, t, 2147483647);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(t.as<std::int32_t>()[i], 2147483647);
}

TEST(ElementwiseContract, fill_writes_every_element_of_each_type) {
  for (const auto size : kSizes)
    for (const auto type : {DType::fp32, DType::bf16, DType::int32, DType::uint8}) {
      Bench b;
      const auto t = b.poisoned({size}, type);
      fill(b.stream, t, 7);
      for (std::int64_t i = 0; i < size; ++i)
        ASSERT_EQ(type == DType::uint8 ? static_cast<double>(t.as<std::uint8_t>()[i]) : get(t, i),
                  7)
            << i;
    }
}

TEST(ElementwiseContract, convert_copies_types_that_it_cannot_round) {
  Bench b;
  const auto x = b.integers({3, 1, -7}), y = b.poisoned({3}, DType::int32);
  convert(b.stream, y, x);
  expect_bitwise_equal(y, x, "y");
}

TEST(ElementwiseContract, sizes_and_types_that_do_not_fit_are_refused) {
  Bench b;
  const auto x = b.random({4}, DType::fp32), y = b.random({5}, DType::fp32);
  EXPECT_THROW(convert(b.stream, x, y), Error);
  EXPECT_THROW(convert(b.stream, x, b.integers({1, 2, 3, 4})), Error);
  EXPECT_THROW(fill(b.stream, b.arena.allocate("q", DType::fp8_e4m3, {4}), 0), Error);
  EXPECT_THROW(fill_integer(b.stream, b.random({4}, DType::fp32), 0), Error);
  EXPECT_THROW(random_normal(b.stream, x, {.first_index = -4}), Error);
}

// z of element i by the formula, in float64.
double normal(std::uint64_t seed, std::uint64_t purpose, std::uint64_t i) {
  const auto words = philox(seed, purpose, i / 4);
  const auto pair = i % 4 / 2 * 2;
  const double radius = std::sqrt(-2 * std::log(static_cast<double>(uniform_open(words[pair]))));
  const double angle = 2 * std::numbers::pi * static_cast<double>(uniform_open(words[pair + 1]));
  return radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

TEST_P(Elementwise, random_normal_equals_the_reference) {
  for (const auto size : kSizes)
    for (const std::int64_t first :
         {std::int64_t{0}, std::int64_t{4}, std::int64_t{7}, (std::int64_t{1} << 36) + 1}) {
      Bench b;
      const auto z = b.poisoned({size}, GetParam());
      random_normal(b.stream, z, {.seed = 5, .purpose = 9, .first_index = first, .std = 0.02f});
      Doubles expected;
      for (std::int64_t i = 0; i < size; ++i)
        expected.push_back(0.02 * normal(5, 9, static_cast<std::uint64_t>(first + i)));
      expect_close(z, expected, tolerance(GetParam()), "z");
    }
}

TEST(RandomNormal, is_a_function_of_the_index) {
  Bench b;
  constexpr std::int64_t kSize = 200000;
  const auto whole = b.poisoned({kSize}, DType::fp32), parts = b.poisoned({kSize}, DType::fp32);
  random_normal(b.stream, whole, {.seed = 1, .purpose = 2});
  for (const int threads : {1, 2, 3}) {
    Stream stream(Device{}, "test", Stream::Mode::immediate, threads);
    for (std::int64_t begin = 0, size = 1; begin < kSize; begin += size, size = size * 2 + 1) {
      size = std::min(size, kSize - begin);
      random_normal(stream, parts.rows(begin, size),
                    {.seed = 1, .purpose = 2, .first_index = begin});
    }
    expect_bitwise_equal(parts, whole, "parts");
    fill(b.stream, parts, 0);
  }
}

// Moments and tails of 2M draws, within 5 standard errors.
TEST(RandomNormal, has_the_moments_of_a_normal_distribution) {
  Bench b;
  constexpr std::int64_t kSize = 1 << 21;
  const auto z = b.poisoned({kSize}, DType::fp32);
  random_normal(b.stream, z, {.seed = 77, .purpose = purpose_of("weight")});
  double sums[5] = {}, beyond_two = 0, neighbours = 0;
  for (std::int64_t i = 0; i < kSize; ++i) {
    const double x = get(z, i);
    double power = 1;
    for (int k = 1; k <= 4; ++k)
      sums[k] += power *= x;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
    if (i > 0) neighbours += x * get(z, i - 1);
  }
  const double n = kSize, error = 5 / std::sqrt(n);
  EXPECT_NEAR(sums[1] / n, 0, error);
  EXPECT_NEAR(sums[2] / n, 1, error * std::sqrt(2.0));
  EXPECT_NEAR(sums[3] / n, 0, error * std::sqrt(15.0));
  EXPECT_NEAR(sums[4] / n, 3, error * std::sqrt(96.0));
  EXPECT_NEAR(beyond_two / n, 0.0455003, error * 0.21);
  EXPECT_NEAR(neighbours / n, 0, error);
}

INSTANTIATE_TEST_SUITE_P(types, Elementwise, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::elementwise_test
