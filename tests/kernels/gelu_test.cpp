#include "kernels/gelu.h"

#include <gtest/gtest.h>

#include "tests/kernels/draw.h"
#include "tests/kernels/reference_matmul.h"
#include "tests/testing.h"

namespace lockstep::testing::gelu_test {

const Shape kShapes[] = {{1}, {3, 5}, {16, 16}, {7, 33, 3}, {130, 257}};

Doubles each(const Doubles& x, double (*f)(double)) {
  Doubles y;
  for (const double v : x)
    y.push_back(f(v));
  return y;
}

class Gelu : public ::testing::TestWithParam<DType> {};

TEST_P(Gelu, forward_equals_the_reference_also_in_place) {
  for (const auto& shape : kShapes) {
    Bench b;
    const auto x = b.random(shape, GetParam(), 6), y = b.poisoned(shape, GetParam());
    const auto expected = each(doubles(x), reference::gelu_value);
    gelu_forward(b.stream, y, x);
    expect_close(y, expected, tolerance(GetParam()), "y");
    gelu_forward(b.stream, x, x);
    expect_bitwise_equal(x, y, "y in place");
  }
}

TEST_P(Gelu, backward_equals_the_reference_also_in_place) {
  for (const auto& shape : kShapes) {
    Bench b;
    const auto x = b.random(shape, GetParam(), 6), dy = b.random(shape, GetParam());
    const auto dx = b.poisoned(shape, GetParam());
    auto expected = each(doubles(x), reference::gelu_slope_value);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] *= get(dy, static_cast<std::int64_t>(i));
    gelu_backward(b.stream, dx, dy, x);
    expect_close(dx, expected, tolerance(GetParam()), "dx");
    gelu_backward(b.stream, dy, dy, x);
    expect_bitwise_equal(dy, dx, "dx in place");
  }
}

void check_random(Draw& draw, DType dtype) {
  const Shape shape{draw.size(300), draw.size(900)};
  SCOPED_TRACE(str("shape ", shape));
  auto b = draw.bench();
  const auto x = b.random(shape, dtype, 6), y = b.poisoned(shape, dtype);
  const auto dy = b.random(shape, dtype), dx = b.poisoned(shape, dtype);
  gelu_forward(b.stream, y, x);
  expect_close(y, each(doubles(x), reference::gelu_value), tolerance(dtype), "y", 1);
  gelu_backward(b.stream, dx, dy, x);
  auto expected = each(doubles(x), reference::gelu_slope_value);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] *= get(dy, static_cast<std::int64_t>(i));
  expect_close(dx, expected, tolerance(dtype), "dx", 1);
}
TEST_P(Gelu, random_shapes_equal_the_reference) {
  few_draws([](Draw& draw) { check_random(draw, GetParam()); });
}
TEST_P(Gelu, full_random_shapes_equal_the_reference) {
  many_draws([](Draw& draw) { check_random(draw, GetParam()); });
}

TEST(GeluContract, nan_stays_and_shapes_must_fit) {
  Bench b;
  const auto x = b.random({17}, DType::fp32), y = b.random({17}, DType::fp32);
  Bench::set(x, 16, std::numeric_limits<double>::quiet_NaN());
  gelu_forward(b.stream, y, x);
  EXPECT_TRUE(std::isnan(get(y, 16)));
  EXPECT_THROW(gelu_forward(b.stream, b.random({16}, DType::fp32), x), Error);
  EXPECT_THROW(gelu_backward(b.stream, y, b.random({17}, DType::bf16), x), Error);
}

TEST(GeluContract, the_reference_slope_is_the_derivative_of_the_reference) {
  Bench b;
  auto x = doubles(b.random({20}, DType::fp32, 4));
  const auto loss = [&] {
    double sum = 0;
    for (const double v : x)
      sum += reference::gelu_value(v);
    return sum;
  };
  expect_close(each(x, reference::gelu_slope_value), finite_differences(x, loss), 1e-7, "slope");
}

INSTANTIATE_TEST_SUITE_P(types, Gelu, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::gelu_test
