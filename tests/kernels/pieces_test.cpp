#include "kernels/pieces.h"

#include <gtest/gtest.h>

#include "tests/kernels/draw.h"
#include "tests/testing.h"

namespace lockstep::testing::pieces_test {

constexpr DType kTypes[] = {DType::fp32, DType::bf16};

void check_pack(Bench& b, const Shape& in_shape, std::int64_t first, std::int64_t m, DType to,
                DType from) {
  const auto A = in_shape[0], I = in_shape[1], n = in_shape[2];
  const auto in = b.random(in_shape, from), out = b.poisoned({I, A, m}, to);
  pack_pieces(b.stream, out, in, first);
  for (std::int64_t i = 0; i < I; ++i)
    for (std::int64_t a = 0; a < A; ++a)
      for (std::int64_t j = 0; j < m; ++j) {
        const auto x = static_cast<float>(get(in, (a * I + i) * n + first + j));
        ASSERT_EQ(get(out, (i * A + a) * m + j), to == DType::bf16 ? to_float(to_bf16(x)) : x)
            << i << ' ' << a << ' ' << j;
      }
}

TEST(PackPieces, takes_columns_of_each_piece_in_the_order_of_the_second_index) {
  for (const DType to : kTypes)
    for (const DType from : kTypes) {
      Bench b;
      check_pack(b, {1, 1, 1}, 0, 1, to, from);
      check_pack(b, {3, 4, 40}, 8, 16, to, from);
      check_pack(b, {2, 5, 37}, 5, 31, to, from);
      check_pack(b, {2, 3, 40000}, 100, 39000, to, from);
    }
}

struct Case {
  std::int64_t P, n, C;  // C: of the bias; 0: none
  DType to, from;
  bool residual = false, in_place = false, add = false;
};

// Against float64; and exactly, for fp32 sums in the order of the contract.
void check_sum(Bench& b, const Case& c) {
  const auto pieces = b.random({c.P, c.n}, c.from);
  const auto bias = c.C > 0 ? b.random({c.C}, c.from) : Tensor{};
  const auto out = c.add || c.in_place ? b.random({c.n}, c.to) : b.poisoned({c.n}, c.to);
  const auto residual = !c.residual ? Tensor{} : c.in_place ? out : b.random({c.n}, c.from);
  const auto absmax = b.poisoned({1}, DType::fp32), before = b.copy(out);
  Doubles expected;
  std::vector<float> in_order;
  for (std::int64_t j = 0; j < c.n; ++j) {
    double sum = 0;
    float rounded = static_cast<float>(get(pieces, j));
    const auto add = [&](double x) {
      sum += x;
      rounded += static_cast<float>(x);
    };
    sum = get(pieces, j);
    for (std::int64_t p = 1; p < c.P; ++p)
      add(get(pieces, p * c.n + j));
    if (bias) add(get(bias, j % c.C));
    if (residual) add(get(residual.data == out.data ? before : residual, j));
    if (c.add) add(get(before, j));
    expected.push_back(sum);
    in_order.push_back(c.to == DType::bf16 ? to_float(to_bf16(rounded)) : rounded);
  }
  sum_pieces(b.stream, {.out = out,
                        .pieces = pieces,
                        .bias = bias,
                        .residual = residual,
                        .add = c.add,
                        .absmax = absmax});
  expect_close(out, expected, tolerance(c.to), "out", std::sqrt(static_cast<double>(c.P + 3)));
  for (std::int64_t j = 0; j < c.n; ++j)
    ASSERT_EQ(get(out, j), in_order[static_cast<std::size_t>(j)]) << j;
  expect_absmax(absmax, out);
}

TEST(SumPieces, sums_equal_the_reference_and_are_added_in_the_order_of_pieces) {
  for (const DType to : kTypes)
    for (const DType from : kTypes)
      for (const bool add : {false, true}) {
        Bench b;
        check_sum(b, {1, 1, 0, to, from, false, false, add});
        check_sum(b, {2, 70000, 0, to, from, true, to == from, add});
        check_sum(b, {3, 37 * 50, 37, to, from, false, false, add});
        check_sum(b, {8, 777 * 60, 777, to, from, true, false, add});
        check_sum(b, {1000, 45, 15, to, from, true, to == from, add});
      }
}

void check_random(Draw& draw) {
  const auto type = [&] { return draw.coin() ? DType::fp32 : DType::bf16; };
  auto b = draw.bench();
  const Shape shape{draw.between(1, 9), draw.between(1, 9), draw.size(400)};
  const auto first = draw.between(0, shape[2] - 1);
  check_pack(b, shape, first, draw.between(1, shape[2] - first), type(), type());

  Case c{draw.size(20), draw.size(3000), 0, type(), type(), draw.coin(), false, draw.coin()};
  if (draw.coin()) {
    c.C = draw.size(100);
    c.n = c.C * draw.between(1, 40);
  }
  c.in_place = c.residual && c.to == c.from && draw.coin();
  SCOPED_TRACE(str("P ", c.P, " n ", c.n, " C ", c.C));
  check_sum(b, c);
}
TEST(SumPieces, random_shapes_equal_the_reference) {
  few_draws(check_random);
}
TEST(SumPieces, full_random_shapes_equal_the_reference) {
  many_draws(check_random);
}

TEST(SumPieces, a_nan_stays_and_is_left_out_of_absmax) {
  Bench b;
  const auto pieces = b.random({4, 100}, DType::bf16), out = b.poisoned({100}, DType::bf16);
  const auto absmax = b.poisoned({1}, DType::fp32);
  Bench::set(pieces, 250, std::nan(""));
  sum_pieces(b.stream, {.out = out, .pieces = pieces, .absmax = absmax});
  for (std::int64_t j = 0; j < 100; ++j)
    EXPECT_EQ(std::isnan(get(out, j)), j == 50);
  Bench::set(out, 50, 0);
  expect_absmax(absmax, out);
}

TEST(PiecesContract, wrong_arguments_are_refused_by_name) {
  Bench b;
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  const auto expect = [&](const std::string& said, const char* part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  const auto in = b.random({2, 3, 8}, DType::fp32), out = b.random({3, 2, 4}, DType::fp32);
  const auto pack = [&](Tensor to, std::int64_t first) {
    return message([&] { pack_pieces(b.stream, to, in, first); });
  };
  EXPECT_EQ(pack(out, 4), "accepted");
  expect(pack(out, 5), "columns 5+4 of in, which has 8");
  expect(pack(out.view({2, 3, 4}), 0), "out is [2, 3, 4], expected [3, 2, m]");

  const auto sum = [&](const SumPieces& args) {
    return message([&] { sum_pieces(b.stream, args); });
  };
  const auto pieces = b.random({2, 12}, DType::bf16), y = b.random({12}, DType::fp32);
  const auto half = b.random({12}, DType::bf16), seven = b.random({7}, DType::bf16);
  EXPECT_EQ(sum({.out = y, .pieces = pieces}), "accepted");
  expect(sum({.out = y, .pieces = pieces.view({3, 8})}), "pieces is [3, 8], expected [P, 12]");
  expect(sum({.out = y, .pieces = pieces.rows(0, 0)}), "pieces is [0, 12], expected [P, 12]");
  expect(sum({.out = y, .pieces = pieces, .bias = seven}), "bias has 7 elements");
  expect(sum({.out = y, .pieces = pieces, .residual = y}), "residual is fp32, expected bf16");
  expect(sum({.out = y, .pieces = pieces, .residual = seven}), "residual has 7 elements");
  auto overlaid = y;
  overlaid.dtype = DType::bf16;
  expect(sum({.out = y, .pieces = pieces, .residual = overlaid}),
         "out is residual, but fp32, expected bf16");
  EXPECT_EQ(sum({.out = half, .pieces = pieces, .residual = half}), "accepted");
}

}  // namespace lockstep::testing::pieces_test
