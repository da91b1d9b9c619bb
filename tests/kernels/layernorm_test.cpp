#include "kernels/layernorm.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "tests/kernels/draw.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/reference_layernorm.h"
#include "tests/testing.h"

namespace lockstep::testing::layernorm_test {

const Shape kShapes[] = {{1, 2}, {3, 16}, {7, 33}, {70, 50}, {300, 20}, {64, 768}};

class LayerNorm : public ::testing::TestWithParam<DType> {};

TEST_P(LayerNorm, forward_equals_the_reference) {
  for (const auto& shape : kShapes) {
    for (const bool with_residual : {false, true}) {
      Bench b;
      const auto N = shape[0], D = shape[1];
      const LayerNormForward args{
          .y = b.poisoned(shape, GetParam()),
          .stats = b.poisoned({N, 2}, DType::fp32),
          .sum = with_residual ? b.poisoned(shape, GetParam()) : Tensor{},
          .x = b.random(shape, GetParam()),
          .residual = with_residual ? ConstTensor(b.random(shape, GetParam())) : ConstTensor{},
          .weight = b.random({D}, GetParam()),
          .bias = b.random({D}, GetParam())};
      layernorm_forward(b.stream, args);
      const auto s =
          with_residual ? reference::add(doubles(args.x), doubles(args.residual)) : doubles(args.x);
      if (with_residual) expect_close(args.sum, s, tolerance(GetParam()), "sum");
      const auto expected = reference::layernorm(with_residual ? doubles(args.sum) : s,
                                                 doubles(args.weight), doubles(args.bias), 1e-5);
      expect_close(args.y, expected.y, tolerance(GetParam()), "y");
      expect_close(args.stats, expected.stats, tolerance(DType::fp32), "stats");
    }
  }
}

TEST_P(LayerNorm, sum_may_be_x_or_residual) {
  Bench b;
  const Shape shape{9, 35};
  const auto x = b.random(shape, GetParam()), residual = b.random(shape, GetParam());
  const auto weight = b.random({35}, GetParam()), bias = b.random({35}, GetParam());
  const auto y = b.poisoned(shape, GetParam()), sum = b.poisoned(shape, GetParam());
  const auto stats = b.poisoned({9, 2}, DType::fp32);
  layernorm_forward(b.stream, {y, stats, sum, x, residual, weight, bias});
  for (const bool over_x : {true, false}) {
    const auto x2 = b.copy(x), residual2 = b.copy(residual), y2 = b.poisoned(shape, GetParam());
    const auto sum2 = over_x ? x2 : residual2;
    layernorm_forward(b.stream, {y2, stats, sum2, x2, residual2, weight, bias});
    expect_bitwise_equal(sum2, sum, "sum");
    expect_bitwise_equal(y2, y, "y");
  }
}

// Two passes: the variance does not come out of a difference of large squares.
TEST(LayerNormContract, a_large_mean_does_not_destroy_the_variance) {
  Bench b;
  const Shape shape{5, 768};
  const auto x = b.random(shape, DType::fp32);
  for (std::int64_t i = 0; i < x.elements(); ++i)
    Bench::set(x, i, 1000 + get(x, i));
  const auto weight = b.random({768}, DType::fp32), bias = b.random({768}, DType::fp32);
  const auto y = b.poisoned(shape, DType::fp32), stats = b.poisoned({5, 2}, DType::fp32);
  layernorm_forward(b.stream, {y, stats, {}, x, {}, weight, bias});
  // The mean is rounded to 2^-24 x 1000, 1e-4 of the spread.
  expect_close(y, reference::layernorm(doubles(x), doubles(weight), doubles(bias), 1e-5).y, 3e-4,
               "y");
}

TEST_P(LayerNorm, backward_equals_the_reference_on_any_number_of_threads) {
  for (const auto& shape : kShapes) {
    Bench b;
    const auto N = shape[0], D = shape[1];
    const auto s = b.random(shape, GetParam()), dy = b.random(shape, GetParam());
    const auto weight = b.random({D}, GetParam()), bias = b.random({D}, GetParam());
    const auto past = b.random(shape, GetParam());
    const auto w_before = b.random({D}, DType::fp32), b_before = b.random({D}, DType::fp32);
    const auto y = b.poisoned(shape, GetParam()), stats = b.poisoned({N, 2}, DType::fp32);
    layernorm_forward(b.stream, {y, stats, {}, s, {}, weight, bias});
    const auto g = reference::layernorm_gradient(doubles(dy), doubles(s), doubles(weight), 1e-5);
    Tensor first;
    for (const int threads : {1, 2, 3}) {
      Stream stream(Device{}, "test", Stream::Mode::immediate, threads);
      const auto dx = b.copy(past), dweight = b.copy(w_before), dbias = b.copy(b_before);
      layernorm_backward(stream, b.arena, {dx, dweight, dbias, dy, s, stats, weight});
      expect_close(dx, reference::add(doubles(past), g.ds), tolerance(GetParam()), "dx");
      expect_close(dweight, reference::add(doubles(w_before), g.dweight), tolerance(DType::fp32),
                   "dweight");
      expect_close(dbias, reference::add(doubles(b_before), g.dbias), tolerance(DType::fp32),
                   "dbias");
      if (first) expect_bitwise_equal(dweight, first, "dweight");
      first = dweight;
    }
  }
}

// Rounding of s - mean is divided by the spread, and that of rstd by its square: of a few columns
// the spread may be small.
void check_random(Draw& draw, DType dtype) {
  const auto N = draw.size(400), D = draw.size(900);
  SCOPED_TRACE(str("N ", N, " D ", D));
  auto b = draw.bench();
  const Shape shape{N, D};
  const bool with_residual = draw.coin();
  const float epsilon = draw.coin() ? 1e-5f : 1e-3f;
  const LayerNormForward args{
      .y = b.poisoned(shape, dtype),
      .stats = b.poisoned({N, 2}, DType::fp32),
      .sum = with_residual ? b.poisoned(shape, dtype) : Tensor{},
      .x = b.random(shape, dtype),
      .residual = with_residual ? ConstTensor(b.random(shape, dtype)) : ConstTensor{},
      .weight = b.random({D}, dtype),
      .bias = b.random({D}, dtype),
      .epsilon = epsilon};
  layernorm_forward(b.stream, args);
  if (with_residual)
    expect_close(args.sum, reference::add(doubles(args.x), doubles(args.residual)),
                 tolerance(dtype), "sum", 1);
  const ConstTensor s = with_residual ? ConstTensor(args.sum) : args.x;
  const auto weight = doubles(args.weight);
  const auto expected =
      reference::layernorm(doubles(s), weight, doubles(args.bias), static_cast<double>(epsilon));
  const double rstd = *std::max_element(expected.stats.begin(), expected.stats.end());
  expect_close(args.y, expected.y, tolerance(dtype), "y", rstd);
  expect_close(args.stats, expected.stats, tolerance(DType::fp32), "stats", rstd * rstd);

  const auto dy = b.random(shape, dtype), dx = b.random(shape, dtype);
  const auto dweight = b.random({D}, DType::fp32), dbias = b.random({D}, DType::fp32);
  const auto past = doubles(dx), w_before = doubles(dweight), b_before = doubles(dbias);
  layernorm_backward(b.stream, b.arena, {dx, dweight, dbias, dy, s, args.stats, args.weight});
  const auto g =
      reference::layernorm_gradient(doubles(dy), doubles(s), weight, static_cast<double>(epsilon));
  const double rows = std::sqrt(static_cast<double>(N));
  expect_close(dx, reference::add(past, g.ds), tolerance(dtype), "dx", rstd * rstd);
  expect_close(dweight, reference::add(w_before, g.dweight), tolerance(DType::fp32), "dweight",
               rstd + rows);
  expect_close(dbias, reference::add(b_before, g.dbias), tolerance(DType::fp32), "dbias", rows);
}
TEST_P(LayerNorm, random_shapes_equal_the_reference) {
  few_draws([](Draw& draw) { check_random(draw, GetParam()); });
}
TEST_P(LayerNorm, full_random_shapes_equal_the_reference) {
  many_draws([](Draw& draw) { check_random(draw, GetParam()); });
}

TEST(LayerNormContract, a_shape_that_does_not_fit_is_refused_by_name) {
  Bench b;
  const auto x = b.random({4, 8}, DType::fp32), stats = b.random({4, 2}, DType::fp32);
  const auto weight = b.random({8}, DType::fp32);
  try {
    layernorm_forward(b.stream, {x, stats, {}, x, {}, weight, b.random({9}, DType::fp32)});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("bias is [9], expected [8]"), std::string::npos);
  }
  EXPECT_THROW(layernorm_forward(b.stream, {x, stats, {}, x, x, weight, weight}), Error);
}

TEST(LayerNormContract, a_measuring_stream_counts_the_scratch_and_touches_nothing) {
  Bench b;
  const auto x = b.random({70, 33}, DType::fp32), dx = b.copy(x),
             stats = b.random({70, 2}, DType::fp32);
  const auto weight = b.random({33}, DType::fp32), dweight = b.copy(weight), dbias = b.copy(weight);
  Arena scratch(Device{}, Arena::Memory::host, 1 << 20), counted = Arena::measure(Device{});
  Stream measuring(Device{}, "measure", Stream::Mode::measuring, 2);
  const LayerNormBackward args{dx, dweight, dbias, x, x, stats, weight};
  layernorm_backward(measuring, counted, args);
  expect_bitwise_equal(dx, x, "dx");
  layernorm_backward(b.stream, scratch, args);
  EXPECT_GT(scratch.peak_bytes(), 0);
  EXPECT_EQ(counted.peak_bytes(), scratch.peak_bytes());
}

TEST(LayerNormContract, the_reference_gradient_is_the_derivative_of_the_reference) {
  Bench b;
  auto s = doubles(b.random({3, 5}, DType::fp32)), weight = doubles(b.random({5}, DType::fp32));
  auto bias = doubles(b.random({5}, DType::fp32));
  const auto dy = doubles(b.random({3, 5}, DType::fp32));
  const auto loss = [&] {
    return reference::dot(dy, reference::layernorm(s, weight, bias, 1e-5).y);
  };
  const auto g = reference::layernorm_gradient(dy, s, weight, 1e-5);
  expect_close(g.ds, finite_differences(s, loss), 1e-7, "ds");
  expect_close(g.dweight, finite_differences(weight, loss), 1e-7, "dweight");
  expect_close(g.dbias, finite_differences(bias, loss), 1e-7, "dbias");
}

INSTANTIATE_TEST_SUITE_P(types, LayerNorm, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::layernorm_test
