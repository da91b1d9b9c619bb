#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include "tests/kernels/draw.h"
#include "tests/kernels/reference_matmul.h"
#include "tests/testing.h"

namespace lockstep::testing::matmul_test {

using reference::MatmulSize;

// N tokens, I inputs, O outputs: single elements, primes, a row or two (decoding), and sizes past
// every block of the packed kernel in each dimension in turn; the last three also take several
// blocks of the depth over several packings of rows and panels of columns.
constexpr MatmulSize kSizes[] = {{1, 1, 1},        {1, 7, 3},       {2, 64, 130},    {5, 131, 17},
                                 {13, 48, 96},     {16, 259, 101},  {17, 31, 53},    {40, 96, 64},
                                 {97, 101, 89},    {128, 128, 128}, {61, 700, 45},   {300, 37, 70},
                                 {33, 50, 517},    {20, 1700, 30},  {30, 20, 1700},  {1700, 20, 30},
                                 {100, 1700, 130}, {70, 130, 1700}, {1700, 100, 130}};

Shape shape(std::size_t rows, std::size_t columns) {
  return {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
}
Shape shape(std::size_t size) {
  return {static_cast<std::int64_t>(size)};
}

std::string text(MatmulSize s, const char* what) {
  return str(what, " at N ", s.N, " I ", s.I, " O ", s.O);
}

void add_rows(Doubles& y, const Doubles& row) {
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] += row[i % row.size()];
}

class Matmul : public ::testing::TestWithParam<DType> {};

TEST_P(Matmul, forward_equals_the_reference) {
  for (const auto s : kSizes) {
    Bench b;
    const auto x = b.random(shape(s.N, s.I), GetParam());
    const auto weight = b.random(shape(s.O, s.I), GetParam());
    const auto expected = reference::matmul(doubles(x), doubles(weight), s);
    for (const auto type : {GetParam(), DType::fp32}) {
      const auto y = b.poisoned(shape(s.N, s.O), type);
      matmul_forward(b.stream, b.arena, y, x, weight);
      expect_close(y, expected, tolerance(type), text(s, "y"));
    }
  }
}

TEST_P(Matmul, forward_adds_bias_and_residual) {
  for (const auto s : kSizes) {
    Bench b;
    const auto x = b.random(shape(s.N, s.I), GetParam());
    const auto weight = b.random(shape(s.O, s.I), GetParam());
    const auto bias = b.random(shape(s.O), GetParam(), 3);
    const auto product = reference::matmul(doubles(x), doubles(weight), s);
    for (const auto type : {GetParam(), DType::fp32}) {
      const auto residual = b.random(shape(s.N, s.O), type, 3);
      const auto y = b.poisoned(shape(s.N, s.O), type), in_place = b.copy(residual);
      matmul_forward(b.stream, b.arena, y, x, weight, {.bias = bias, .residual = residual});
      matmul_forward(b.stream, b.arena, in_place, x, weight, {.bias = bias, .residual = in_place});
      auto expected = product;
      add_rows(expected, doubles(bias));
      add_rows(expected, doubles(residual));
      expect_close(y, expected, tolerance(type), text(s, "y"));
      expect_bitwise_equal(in_place, y, text(s, "y in place"));
    }
  }
}

TEST_P(Matmul, forward_applies_gelu_and_keeps_what_went_in) {
  for (const auto s : kSizes) {
    Bench b;
    const float scale = 2 / std::sqrt(static_cast<float>(s.I));
    const auto x = b.random(shape(s.N, s.I), GetParam(), scale);
    const auto weight = b.random(shape(s.O, s.I), GetParam());
    const auto bias = b.random(shape(s.O), GetParam());
    const auto residual = b.random(shape(s.N, s.O), GetParam());
    const auto y = b.poisoned(shape(s.N, s.O), GetParam());
    const auto pre_gelu = b.poisoned(shape(s.N, s.O), GetParam());
    matmul_forward(b.stream, b.arena, y, x, weight,
                   {.bias = bias, .pre_gelu = pre_gelu, .residual = residual});
    auto expected = reference::matmul(doubles(x), doubles(weight), s);
    add_rows(expected, doubles(bias));
    expect_close(pre_gelu, expected, tolerance(GetParam()), text(s, "pre_gelu"));
    // From the stored pre_gelu: backward recomputes y from it.
    auto gelu = doubles(pre_gelu);
    for (auto& v : gelu)
      v = reference::gelu_value(v);
    add_rows(gelu, doubles(residual));
    expect_close(y, gelu, tolerance(GetParam()), text(s, "y"));
  }
}

TEST_P(Matmul, backward_input_equals_the_reference) {
  for (const auto s : kSizes) {
    Bench b;
    const auto dy = b.random(shape(s.N, s.O), GetParam());
    const auto weight = b.random(shape(s.O, s.I), GetParam());
    const auto pre_gelu = b.random(shape(s.N, s.I), GetParam(), 3);
    const auto dx = b.poisoned(shape(s.N, s.I), GetParam());
    auto expected = reference::matmul_dx(doubles(dy), doubles(weight), s);
    matmul_backward_input(b.stream, b.arena, dx, dy, weight);
    expect_close(dx, expected, tolerance(GetParam()), text(s, "dx"));
    matmul_backward_input(b.stream, b.arena, dx, dy, weight, pre_gelu);
    const auto before = doubles(pre_gelu);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] *= reference::gelu_slope_value(before[i]);
    expect_close(dx, expected, tolerance(GetParam()), text(s, "dx through gelu"));
  }
}

TEST_P(Matmul, backward_weight_adds_to_the_gradients) {
  for (const auto s : kSizes) {
    Bench b;
    const auto dy = b.random(shape(s.N, s.O), GetParam());
    const auto x = b.random(shape(s.N, s.I), GetParam());
    const auto product = reference::matmul_dweight(doubles(dy), doubles(x), s);
    for (const bool with_bias : {false, true}) {
      const auto dweight = b.random(shape(s.O, s.I), DType::fp32, 3);
      const auto dbias = with_bias ? b.random(shape(s.O), DType::fp32, 3) : Tensor{};
      auto weight_expected = doubles(dweight), bias_expected = doubles(dbias);
      matmul_backward_weight(b.stream, b.arena, dweight, dbias, dy, x);
      add_rows(weight_expected, product);
      expect_close(dweight, weight_expected, tolerance(DType::fp32), text(s, "dweight"));
      if (!with_bias) continue;
      add_rows(bias_expected, reference::column_sums(doubles(dy), s.O));
      expect_close(dbias, bias_expected, tolerance(DType::fp32), text(s, "dbias"));
    }
  }
}

TEST_P(Matmul, bits_do_not_depend_on_the_run_or_the_threads) {
  for (const MatmulSize s :
       {MatmulSize{3, 300, 70}, {150, 300, 200}, {100, 1700, 130}, {70, 130, 1700}}) {
    Bench b;
    const auto x = b.random(shape(s.N, s.I), GetParam());
    const auto weight = b.random(shape(s.O, s.I), GetParam());
    const auto dy = b.random(shape(s.N, s.O), GetParam());
    Tensor y[3], dx[3], dweight[3], dbias[3];
    for (std::size_t run = 0; run < 3; ++run) {
      Stream three(Device{}, "three", Stream::Mode::immediate, 3);
      Stream& stream = run == 2 ? three : b.stream;
      y[run] = b.poisoned(shape(s.N, s.O), GetParam());
      dx[run] = b.poisoned(shape(s.N, s.I), GetParam());
      dweight[run] = b.random(shape(s.O, s.I), DType::fp32, 0);
      dbias[run] = b.random(shape(s.O), DType::fp32, 0);
      matmul_forward(stream, b.arena, y[run], x, weight);
      matmul_backward_input(stream, b.arena, dx[run], dy, weight);
      matmul_backward_weight(stream, b.arena, dweight[run], dbias[run], dy, x);
    }
    for (std::size_t run = 1; run < 3; ++run) {
      expect_bitwise_equal(y[run], y[0], text(s, "y"));
      expect_bitwise_equal(dx[run], dx[0], text(s, "dx"));
      expect_bitwise_equal(dweight[run], dweight[0], text(s, "dweight"));
      expect_bitwise_equal(dbias[run], dbias[0], text(s, "dbias"));
    }
  }
}

// Products small enough for the reference; long in one dimension or middling in two.
MatmulSize draw_size(Draw& draw) {
  for (;;) {
    const auto N = draw.size(2000), I = draw.size(2000), O = draw.size(2000);
    if (N * I * O <= 1 << 19)
      return {static_cast<std::size_t>(N), static_cast<std::size_t>(I),
              static_cast<std::size_t>(O)};
  }
}

void check_forward(Draw& draw, Bench& b, DType dtype, MatmulSize s) {
  const auto type = draw.coin() ? dtype : DType::fp32;
  const float scale = 2 / std::sqrt(static_cast<float>(s.I));  // sums around 1, where GELU bends
  const auto x = b.random(shape(s.N, s.I), dtype, scale), weight = b.random(shape(s.O, s.I), dtype);
  const auto bias = draw.coin() ? b.random(shape(s.O), dtype) : Tensor{};
  const auto pre_gelu = draw.coin() ? b.poisoned(shape(s.N, s.O), type) : Tensor{};
  const auto residual = draw.coin() ? b.random(shape(s.N, s.O), type) : Tensor{};
  const auto added = doubles(residual);
  const auto y = residual && draw.coin() ? residual : b.poisoned(shape(s.N, s.O), type);
  matmul_forward(b.stream, b.arena, y, x, weight,
                 {.bias = bias, .pre_gelu = pre_gelu, .residual = residual});
  auto expected = reference::matmul(doubles(x), doubles(weight), s);
  if (bias) add_rows(expected, doubles(bias));
  if (pre_gelu) {
    expect_close(pre_gelu, expected, tolerance(type), "pre_gelu", 1);
    expected = doubles(pre_gelu);
    for (auto& v : expected)
      v = reference::gelu_value(v);
  }
  if (residual) add_rows(expected, added);
  expect_close(y, expected, tolerance(type), "y", 1);
}

void check_backward(Draw& draw, Bench& b, DType dtype, MatmulSize s) {
  const auto x = b.random(shape(s.N, s.I), dtype), dy = b.random(shape(s.N, s.O), dtype);
  const auto weight = b.random(shape(s.O, s.I), dtype), dx = b.poisoned(shape(s.N, s.I), dtype);
  const auto pre_gelu = draw.coin() ? b.random(shape(s.N, s.I), dtype, 3) : Tensor{};
  auto expected = reference::matmul_dx(doubles(dy), doubles(weight), s);
  for (std::size_t i = 0; pre_gelu && i < expected.size(); ++i)
    expected[i] *= reference::gelu_slope_value(get(pre_gelu, static_cast<std::int64_t>(i)));
  matmul_backward_input(b.stream, b.arena, dx, dy, weight, pre_gelu);
  expect_close(dx, expected, tolerance(dtype), "dx", std::sqrt(static_cast<double>(s.O)));

  const auto dweight = b.random(shape(s.O, s.I), DType::fp32);
  const auto dbias = draw.coin() ? b.random(shape(s.O), DType::fp32) : Tensor{};
  auto weight_expected = doubles(dweight), bias_expected = doubles(dbias);
  add_rows(weight_expected, reference::matmul_dweight(doubles(dy), doubles(x), s));
  matmul_backward_weight(b.stream, b.arena, dweight, dbias, dy, x);
  const double magnitude = std::sqrt(static_cast<double>(s.N));
  expect_close(dweight, weight_expected, tolerance(DType::fp32), "dweight", magnitude);
  if (!dbias) return;
  add_rows(bias_expected, reference::column_sums(doubles(dy), s.O));
  expect_close(dbias, bias_expected, tolerance(DType::fp32), "dbias", magnitude);
}

void check_random(Draw& draw, DType dtype) {
  const auto s = draw_size(draw);
  SCOPED_TRACE(text(s, "products"));
  auto b = draw.bench();
  check_forward(draw, b, dtype, s);
  check_backward(draw, b, dtype, s);
}
TEST_P(Matmul, random_shapes_equal_the_reference) {
  few_draws([](Draw& draw) { check_random(draw, GetParam()); });
}
TEST_P(Matmul, full_random_shapes_equal_the_reference) {
  many_draws([](Draw& draw) { check_random(draw, GetParam()); });
}

template <class F>
void expect_refusal(F&& call, const std::string& message) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected: " << message;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
  }
}

TEST(MatmulContract, a_shape_that_does_not_fit_is_refused_by_name) {
  Bench b;
  const auto fp32 = DType::fp32, bf16 = DType::bf16;
  const auto x = b.random({4, 8}, fp32), weight = b.random({6, 8}, fp32);
  const auto y = b.random({4, 6}, fp32), other = b.random({6, 9}, fp32);
  auto& s = b.stream;
  auto& a = b.arena;
  expect_refusal([&] { matmul_forward(s, a, y, x, other); }, "weight is [6, 9], expected [6, 8]");
  expect_refusal([&] { matmul_forward(s, a, x, x, weight); }, "y is [4, 8], expected [4, 6]");
  expect_refusal([&] { matmul_forward(s, a, y, x, weight, {.bias = b.random({5}, fp32)}); },
                 "bias is [5], expected [6]");
  expect_refusal(
      [&] {
        matmul_forward(s, a, b.random({4, 6}, bf16), x, weight);
      },
      "y is bf16, expected fp32");
  expect_refusal([&] { matmul_forward(s, a, y, x.view({32}), weight); },
                 "x is [32], expected [N, I]");
  expect_refusal(
      [&] {
        matmul_forward(s, a, y, b.random({4, 0}, fp32), b.random({6, 0}, fp32));
      },
      "x is [4, 0], expected columns");
  expect_refusal([&] { matmul_backward_input(s, a, other, y, weight); },
                 "dx is [6, 9], expected [4, 8]");
  expect_refusal([&] { matmul_backward_input(s, a, x, y, weight, other); },
                 "pre_gelu is [6, 9], expected [4, 8]");
  expect_refusal([&] { matmul_backward_weight(s, a, other, {}, y, x); },
                 "dweight is [6, 9], expected [6, 8]");
  expect_refusal([&] { matmul_backward_weight(s, a, weight, b.random({7}, fp32), y, x); },
                 "dbias is [7], expected [6]");
}

TEST(MatmulContract, no_token_changes_nothing) {
  Bench b;
  const auto none = b.random({0, 8}, DType::fp32), weight = b.random({8, 8}, DType::fp32);
  const auto before = b.copy(weight);
  matmul_forward(b.stream, b.arena, none, none, weight);
  matmul_backward_input(b.stream, b.arena, none, none, weight);
  matmul_backward_weight(b.stream, b.arena, weight, {}, none, none);
  expect_bitwise_equal(weight, before, "dweight");
}

TEST(MatmulContract, a_measuring_stream_counts_the_scratch_and_touches_nothing) {
  Bench b;
  const auto x = b.random({70, 33}, DType::bf16), weight = b.random({20, 33}, DType::bf16);
  const auto y = b.random({70, 20}, DType::bf16), before = b.copy(y);
  Arena scratch(Device{}, Arena::Memory::host, 32 << 20), counted = Arena::measure(Device{});
  Stream measuring(Device{}, "measure", Stream::Mode::measuring, 2);
  matmul_forward(measuring, counted, y, x, weight);
  expect_bitwise_equal(y, before, "y");
  matmul_forward(b.stream, scratch, y, x, weight);
  EXPECT_GT(scratch.peak_bytes(), 0);
  EXPECT_EQ(counted.peak_bytes(), scratch.peak_bytes());
}

TEST(MatmulContract, the_reference_gradients_are_the_derivatives_of_the_reference) {
  Bench b;
  const MatmulSize s{3, 5, 4};
  auto x = doubles(b.random({3, 5}, DType::fp32)), weight = doubles(b.random({4, 5}, DType::fp32));
  const auto dy = doubles(b.random({3, 4}, DType::fp32));
  const auto loss = [&] {
    const auto y = reference::matmul(x, weight, s);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i)
      sum += dy[i] * y[i];
    return sum;
  };
  expect_close(reference::matmul_dx(dy, weight, s), finite_differences(x, loss), 1e-7, "dx");
  expect_close(reference::matmul_dweight(dy, x, s), finite_differences(weight, loss), 1e-7,
               "dweight");
  Doubles at{-3, -0.7, 0, 0.4, 2};
  for (auto& v : at) {
    Doubles one{v};
    expect_close({reference::gelu_slope_value(v)},
                 finite_differences(one, [&] { return reference::gelu_value(one[0]); }), 1e-7,
                 "gelu'");
  }
}

INSTANTIATE_TEST_SUITE_P(types, Matmul, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::matmul_test
