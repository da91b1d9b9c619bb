#include "kernels/rmsnorm.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "tests/kernels/draw.h"
#include "tests/kernels/reference.h"
#include "tests/testing.h"

namespace lockstep::testing::rmsnorm_test {

class RmsNorm : public ::testing::TestWithParam<DType> {};

TEST_P(RmsNorm, forward_equals_the_reference) {
  for (const Shape shape : {Shape{1, 1}, {3, 16}, {7, 33}, {64, 768}}) {
    for (const bool with_residual : {false, true}) {
      Bench b;
      const auto N = shape[0], D = shape[1];
      const auto x = b.random(shape, GetParam()), weight = b.random({D}, GetParam());
      const auto residual = with_residual ? b.random(shape, GetParam()) : Tensor{};
      const auto sum = with_residual ? b.poisoned(shape, GetParam()) : Tensor{};
      const auto y = b.poisoned(shape, GetParam()), rstd = b.poisoned({N}, DType::fp32);
      rmsnorm_forward(b.stream, {y, rstd, sum, x, residual, weight, 1e-5f});
      const auto s = with_residual ? reference::add(doubles(x), doubles(residual)) : doubles(x);
      const auto expected = reference::rmsnorm(
          with_residual && GetParam() == DType::bf16 ? doubles(sum) : s, doubles(weight), 1e-5);
      if (with_residual) expect_close(sum, s, tolerance(GetParam()), "sum");
      expect_close(y, expected.y, tolerance(GetParam()), "y");
      expect_close(rstd, expected.rstd, tolerance(DType::fp32), "rstd");
    }
  }
}

TEST_P(RmsNorm, sum_may_be_x_or_residual) {
  Bench b;
  const Shape shape{9, 35};
  const auto x = b.random(shape, GetParam()), residual = b.random(shape, GetParam());
  const auto weight = b.random({35}, GetParam()), rstd = b.poisoned({9}, DType::fp32);
  const auto y = b.poisoned(shape, GetParam()), sum = b.poisoned(shape, GetParam());
  rmsnorm_forward(b.stream, {y, rstd, sum, x, residual, weight, 1e-5f});
  for (const bool over_x : {true, false}) {
    const auto x2 = b.copy(x), residual2 = b.copy(residual), y2 = b.poisoned(shape, GetParam());
    const auto sum2 = over_x ? x2 : residual2;
    rmsnorm_forward(b.stream, {y2, rstd, sum2, x2, residual2, weight, 1e-5f});
    expect_bitwise_equal(sum2, sum, "sum");
    expect_bitwise_equal(y2, y, "y");
  }
}

TEST_P(RmsNorm, backward_has_the_same_bits_on_any_number_of_threads) {
  Bench b;
  const Shape shape{300, 50};
  const auto s = b.random(shape, GetParam()), weight = b.random({50}, GetParam());
  const auto dy = b.random(shape, GetParam()), rstd = b.random({300}, DType::fp32);
  const auto before = b.random(shape, GetParam()), dweight_before = b.random({50}, DType::fp32);
  const auto dx = b.copy(before), dweight = b.copy(dweight_before);
  rmsnorm_backward(b.stream, b.arena, {dx, dweight, dy, s, rstd, weight});
  for (const int threads : {1, 3}) {
    Stream stream(Device{}, "test", Stream::Mode::immediate, threads);
    const auto dx2 = b.copy(before), dweight2 = b.copy(dweight_before);
    rmsnorm_backward(stream, b.arena, {dx2, dweight2, dy, s, rstd, weight});
    expect_bitwise_equal(dx2, dx, "dx");
    expect_bitwise_equal(dweight2, dweight, "dweight");
  }
}

TEST_P(RmsNorm, backward_equals_the_reference) {
  for (const Shape shape : {Shape{1, 1}, {3, 16}, {70, 33}, {64, 768}}) {
    Bench b;
    const auto N = shape[0], D = shape[1];
    const auto s = b.random(shape, GetParam()), weight = b.random({D}, GetParam());
    const auto dy = b.random(shape, GetParam()), past = b.random(shape, GetParam());
    const auto before = b.random({D}, DType::fp32);
    const auto dx = b.copy(past), dweight = b.copy(before);
    const auto y = b.poisoned(shape, GetParam()), rstd = b.poisoned({N}, DType::fp32);
    rmsnorm_forward(b.stream, {y, rstd, {}, s, {}, weight, 1e-5f});
    rmsnorm_backward(b.stream, b.arena, {dx, dweight, dy, s, rstd, weight});
    const auto g = reference::rmsnorm_gradient(doubles(dy), doubles(s), doubles(weight), 1e-5);
    expect_close(dx, reference::add(doubles(past), g.ds), tolerance(GetParam()), "dx");
    expect_close(dweight, reference::add(doubles(before), g.dweight), tolerance(DType::fp32),
                 "dweight");
  }
}

void check_random(Draw& draw, DType dtype) {
  const auto N = draw.size(400), D = draw.size(900);
  SCOPED_TRACE(str("N ", N, " D ", D));
  auto b = draw.bench();
  const Shape shape{N, D};
  const float epsilon = draw.coin() ? 1e-5f : 1e-3f;
  const auto x = b.random(shape, dtype), weight = b.random({D}, dtype);
  const auto residual = draw.coin() ? b.random(shape, dtype) : Tensor{};
  const auto sum = residual ? b.poisoned(shape, dtype) : Tensor{};
  const auto y = b.poisoned(shape, dtype), rstd = b.poisoned({N}, DType::fp32);
  rmsnorm_forward(b.stream, {y, rstd, sum, x, residual, weight, epsilon});
  if (residual)
    expect_close(sum, reference::add(doubles(x), doubles(residual)), tolerance(dtype), "sum", 1);
  const auto s = residual ? sum : x;
  const auto expected =
      reference::rmsnorm(doubles(s), doubles(weight), static_cast<double>(epsilon));
  expect_close(y, expected.y, tolerance(dtype), "y", 1);
  expect_close(rstd, expected.rstd, tolerance(DType::fp32), "rstd");

  const auto dy = b.random(shape, dtype), dx = b.random(shape, dtype);
  const auto dweight = b.random({D}, DType::fp32);
  const auto past = doubles(dx), before = doubles(dweight);
  rmsnorm_backward(b.stream, b.arena, {dx, dweight, dy, s, rstd, weight});
  const auto g = reference::rmsnorm_gradient(doubles(dy), doubles(s), doubles(weight),
                                             static_cast<double>(epsilon));
  // A row of one element near 0 has a large rstd and, by algebra, no gradient.
  expect_close(dx, reference::add(past, g.ds), tolerance(dtype), "dx",
               *std::max_element(expected.rstd.begin(), expected.rstd.end()));
  expect_close(dweight, reference::add(before, g.dweight), tolerance(DType::fp32), "dweight",
               std::sqrt(static_cast<double>(N)));
}
TEST_P(RmsNorm, random_shapes_equal_the_reference) {
  few_draws([](Draw& draw) { check_random(draw, GetParam()); });
}
TEST_P(RmsNorm, full_random_shapes_equal_the_reference) {
  many_draws([](Draw& draw) { check_random(draw, GetParam()); });
}

TEST(RmsNormContract, a_shape_that_does_not_fit_is_refused_by_name) {
  Bench b;
  const auto x = b.random({4, 8}, DType::fp32), rstd = b.random({4}, DType::fp32);
  try {
    rmsnorm_forward(b.stream, {x, rstd, {}, x, {}, b.random({9}, DType::fp32), 1e-5f});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("weight is [9], expected [8]"), std::string::npos);
  }
}

TEST(RmsNormContract, a_measuring_stream_counts_the_scratch_and_touches_nothing) {
  Bench b;
  const auto x = b.random({70, 33}, DType::fp32), dy = b.random({70, 33}, DType::fp32);
  const auto dx = b.copy(x), weight = b.random({33}, DType::fp32), dweight = b.copy(weight);
  const auto rstd = b.random({70}, DType::fp32);
  Arena scratch(Device{}, Arena::Memory::host, 1 << 20), counted = Arena::measure(Device{});
  Stream measuring(Device{}, "measure", Stream::Mode::measuring, 2);
  rmsnorm_backward(measuring, counted, {dx, dweight, dy, x, rstd, weight});
  expect_bitwise_equal(dx, x, "dx");
  rmsnorm_backward(b.stream, scratch, {dx, dweight, dy, x, rstd, weight});
  EXPECT_GT(scratch.peak_bytes(), 0);
  EXPECT_EQ(counted.peak_bytes(), scratch.peak_bytes());
}

TEST(RmsNormContract, the_reference_gradient_is_the_derivative_of_the_reference) {
  Bench b;
  auto s = doubles(b.random({3, 5}, DType::fp32)), weight = doubles(b.random({5}, DType::fp32));
  const auto dy = doubles(b.random({3, 5}, DType::fp32));
  const auto loss = [&] { return reference::dot(dy, reference::rmsnorm(s, weight, 1e-5).y); };
  const auto g = reference::rmsnorm_gradient(dy, s, weight, 1e-5);
  expect_close(g.ds, finite_differences(s, loss), 1e-7, "ds");
  expect_close(g.dweight, finite_differences(weight, loss), 1e-7, "dweight");
}

INSTANTIATE_TEST_SUITE_P(types, RmsNorm, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::rmsnorm_test
