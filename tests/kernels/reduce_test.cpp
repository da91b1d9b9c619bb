#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include "tests/testing.h"

namespace lockstep::testing::reduce_test {

constexpr std::int64_t kSizes[] = {1, 15, 64, 65, 4097, 65536, 65537, 1000003};

void squares_of(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  sum_of_squares(stream, scratch, out, {&x, 1});
}

class Reduce : public ::testing::TestWithParam<DType> {};

TEST_P(Reduce, sum_of_squares_equals_the_reference) {
  for (const auto size : kSizes) {
    Bench b;
    const auto x = b.random({size}, GetParam()), out = b.random({1}, DType::fp32);
    double expected = get(out, 0);
    for (const double v : doubles(x))
      expected += v * v;
    squares_of(b.stream, b.arena, out, x);
    EXPECT_NEAR(get(out, 0), expected, expected * 3e-7) << size;
  }
}

TEST_P(Reduce, tensors_add_up_to_one_sum) {
  Bench b;
  std::vector<ConstTensor> tensors;
  const auto out = b.random({1}, DType::fp32);
  double expected = get(out, 0);
  for (const std::int64_t size : {70000, 0, 1, 15, 65536, 200})
    for (const double v : doubles(tensors.emplace_back(b.random({size}, GetParam()))))
      expected += v * v;
  sum_of_squares(b.stream, b.arena, out, tensors);
  EXPECT_NEAR(get(out, 0), expected, expected * 3e-7);
}

TEST_P(Reduce, absmax_equals_the_reference) {
  for (const auto size : kSizes) {
    Bench b;
    const auto x = b.random({size}, GetParam()), out = b.poisoned({1}, DType::fp32);
    Bench::set(x, size / 2, -3);
    Bench::set(x, size / 3 + 1 < size ? size / 3 + 1 : 0, size > 3 ? std::nan("") : -3);
    absmax(b.stream, out, x);
    EXPECT_EQ(get(out, 0), 3.0) << size;
  }
}

TEST_P(Reduce, sum_rows_equals_the_reference_and_adds) {
  for (const Shape shape : {Shape{1, 1}, {7, 33}, {300, 64}, {1000, 17}}) {
    Bench b;
    const auto x = b.random(shape, GetParam()), out = b.random({shape[1]}, DType::fp32);
    auto expected = doubles(out);
    for (std::int64_t i = 0; i < x.elements(); ++i)
      expected[static_cast<std::size_t>(i % shape[1])] += get(x, i);
    sum_rows(b.stream, b.arena, out, x);
    expect_close(out, expected, 4e-6, str(shape));
  }
}

TEST_P(Reduce, any_number_of_threads_gives_the_same_bits) {
  Bench b;
  const auto x = b.random({300001}, GetParam()), expected = b.integers({0, 0});
  for (const int threads : {1, 2, 3}) {
    Stream stream(Device{}, "test", Stream::Mode::immediate, threads);
    const auto out = b.random({1}, DType::fp32);
    Bench::set(out, 0, 0);
    squares_of(stream, b.arena, out, x);
    if (threads == 1) std::copy(out.data, out.data + 4, expected.data);
    EXPECT_TRUE(std::equal(out.data, out.data + 4, expected.data)) << threads << " threads";
  }
}

TEST_P(Reduce, a_value_that_is_not_finite_makes_the_sum_not_finite) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    Bench b;
    const auto x = b.random({70000}, GetParam()), out = b.random({1}, DType::fp32);
    Bench::set(x, 69999, bad);
    squares_of(b.stream, b.arena, out, x);
    EXPECT_FALSE(std::isfinite(get(out, 0)));
  }
}

TEST(ReduceContract, a_measuring_stream_counts_the_scratch_and_touches_nothing) {
  Bench b;
  Arena counted = Arena::measure(Device{});
  Arena scratch(Device{}, Arena::Memory::host, 1 << 20);
  Stream measuring(Device{}, "measure", Stream::Mode::measuring, 2);
  const auto x = b.random({200000}, DType::fp32), out = b.random({1}, DType::fp32);
  const auto before = b.copy(out);
  squares_of(measuring, counted, out, x);
  expect_bitwise_equal(out, before, "out");
  squares_of(b.stream, scratch, out, x);
  EXPECT_GT(scratch.peak_bytes(), 0);
  EXPECT_EQ(scratch.peak_bytes(), counted.peak_bytes());
}

INSTANTIATE_TEST_SUITE_P(types, Reduce, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::reduce_test
