// Tests of the activations and of the operators on elements, besides the properties of each
// operator (cases/).
#include <gtest/gtest.h>

#include "kernels/content_hash.h"
#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "kernels/pieces.h"
#include "kernels/reduce.h"
#include "kernels/swiglu.h"
#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference.h"

namespace lockstep::testing::small_operators_test {

const double kNan = std::nan("");

TEST(SwiGlu, mismatched_shapes_are_rejected_by_name) {
  Bench b;
  const auto gate_up = b.random({4, 10}, DType::fp32);
  expect_refused("gate_up is [4, 10], expected [4, 20]",
                 [&] { swiglu_forward(b.stream, gate_up, gate_up); });
}
TEST(SwiGlu, the_reference_gradient_is_the_derivative_of_the_reference) {
  Bench b;
  auto gate_up = doubles(b.random({3, 10}, DType::fp32, 3));
  const auto dhidden = doubles(b.random({3, 5}, DType::fp32));
  const auto loss = [&] { return reference::dot(dhidden, reference::swiglu(gate_up, 5)); };
  expect_close(reference::swiglu_gradient(dhidden, gate_up, 5), finite_differences(gate_up, loss),
               1e-7, "dgate_up");
}

TEST(Gelu, a_nan_stays_nan_and_mismatched_shapes_are_rejected) {
  Bench b;
  const auto x = b.random({17}, DType::fp32), y = b.random({17}, DType::fp32);
  Bench::set(x, 16, kNan);
  gelu_forward(b.stream, y, x);
  EXPECT_TRUE(std::isnan(get(y, 16)));
  EXPECT_THROW(gelu_forward(b.stream, b.random({16}, DType::fp32), x), Error);
  EXPECT_THROW(gelu_backward(b.stream, y, b.random({17}, DType::bf16), x), Error);
}
TEST(Gelu, the_reference_slope_is_the_derivative_of_the_reference) {
  for (const double at : {-3.0, -0.7, 0.0, 0.4, 2.0}) {
    Doubles x{at};
    const auto slope = finite_differences(x, [&] { return reference::gelu_value(x[0]); });
    expect_close({reference::gelu_slope_value(at)}, slope, 1e-7, str("slope at ", at));
  }
}

TEST(Fill, writes_every_element_of_each_type) {
  for (const auto size : {1, 15, 16, 17, 63, 65, 1000, 16384, 70001})
    for (const auto type : {DType::fp32, DType::bf16, DType::int32, DType::uint8}) {
      Bench b;
      const auto t = b.poisoned({size}, type);
      fill(b.stream, t, 7);
      for (std::int64_t i = 0; i < size; ++i)
        ASSERT_EQ(type == DType::uint8 ? 1.0 * t.as<std::uint8_t>()[i] : get(t, i), 7) << i;
    }
}
TEST(Fill, of_an_integer_is_exact_beyond_the_precision_of_fp32) {
  Bench b;
  const auto t = b.integers({0, 0, 0});
  fill_integer(b.stream, t, 2147483647);
  EXPECT_EQ(doubles(t), Doubles(3, 2147483647));
}
TEST(Convert, copies_types_that_it_cannot_round) {
  Bench b;
  const auto x = b.integers({3, 1, -7}), y = b.poisoned({3}, DType::int32);
  convert(b.stream, y, x);
  expect_bitwise_equal(y, x, "y");
}
TEST(Elementwise, mismatched_sizes_and_types_are_rejected) {
  Bench b;
  const auto x = b.random({4}, DType::fp32), y = b.random({5}, DType::fp32);
  EXPECT_THROW(convert(b.stream, x, y), Error);
  EXPECT_THROW(convert(b.stream, x, b.integers({1, 2, 3, 4})), Error);
  EXPECT_THROW(fill(b.stream, b.arena.allocate("q", DType::fp8_e4m3, {4}), 0), Error);
  EXPECT_THROW(fill_integer(b.stream, b.random({4}, DType::fp32), 0), Error);
  EXPECT_THROW(random_normal(b.stream, x, {.first_index = -4}), Error);
}

TEST(RandomNormal, is_a_function_of_the_index) {
  Bench b;
  constexpr std::int64_t kSize = 200000;
  const auto whole = b.poisoned({kSize}, DType::fp32), parts = b.poisoned({kSize}, DType::fp32);
  random_normal(b.stream, whole, {.seed = 1, .purpose = 2});
  for (std::int64_t begin = 0, size = 1; begin < kSize; begin += size, size = size * 2 + 1) {
    size = std::min(size, kSize - begin);
    random_normal(b.stream, parts.rows(begin, size),
                  {.seed = 1, .purpose = 2, .first_index = begin});
  }
  expect_bitwise_equal(parts, whole, "parts");
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

TEST(SumOfSquares, is_not_finite_if_a_value_is_not_finite) {
  for (const auto type : {DType::fp32, DType::bf16})
    for (const double bad : {kNan, -std::numeric_limits<double>::infinity()}) {
      Bench b;
      const auto x = b.random({70000}, type), out = b.random({1}, DType::fp32);
      Bench::set(x, 69999, bad);
      const ConstTensor all[] = {x};
      sum_of_squares(b.stream, b.arena, out, all);
      EXPECT_FALSE(std::isfinite(get(out, 0)));
    }
}

TEST(SumPieces, a_nan_stays_nan_and_absmax_ignores_it) {
  Bench b;
  const auto pieces = b.random({4, 100}, DType::bf16), out = b.poisoned({100}, DType::bf16);
  const auto absmax = b.poisoned({1}, DType::fp32);
  Bench::set(pieces, 250, kNan);
  sum_pieces(b.stream, {.out = out, .pieces = pieces, .absmax = absmax});
  for (std::int64_t j = 0; j < 100; ++j)
    EXPECT_EQ(std::isnan(get(out, j)), j == 50);
  Bench::set(out, 50, 0);
  expect_absmax(absmax, out);
}
TEST(Pieces, wrong_arguments_are_refused_by_name) {
  Bench b;
  const auto in = b.random({2, 3, 8}, DType::fp32), out = b.random({3, 2, 4}, DType::fp32);
  pack_pieces(b.stream, out, in, 4);
  expect_refused("columns 5+4 of in, which has 8", [&] { pack_pieces(b.stream, out, in, 5); });
  expect_refused("out is [2, 3, 4], expected [3, 2, m]", [&] {
    pack_pieces(b.stream, out.view({2, 3, 4}), in, 0);
  });

  const auto pieces = b.random({2, 12}, DType::bf16), y = b.random({12}, DType::fp32);
  const auto half = b.random({12}, DType::bf16), seven = b.random({7}, DType::bf16);
  auto overlaid = y;
  overlaid.dtype = DType::bf16;
  const auto refused = [&](const char* part, const SumPieces& args) {
    expect_refused(part, [&] { sum_pieces(b.stream, args); });
  };
  sum_pieces(b.stream, {.out = y, .pieces = pieces});
  sum_pieces(b.stream, {.out = half, .pieces = pieces, .residual = half});
  refused("pieces is [3, 8], expected [P, 12]", {.out = y, .pieces = pieces.view({3, 8})});
  refused("pieces is [0, 12], expected [P, 12]", {.out = y, .pieces = pieces.rows(0, 0)});
  refused("bias has 7 elements", {.out = y, .pieces = pieces, .bias = seven});
  refused("residual is fp32, expected bf16", {.out = y, .pieces = pieces, .residual = y});
  refused("residual has 7 elements", {.out = y, .pieces = pieces, .residual = seven});
  refused("out is residual, but fp32, expected bf16",
          {.out = y, .pieces = pieces, .residual = overlaid});
}

class ContentHashes : public ::testing::TestWithParam<DType> {
 protected:
  std::uint64_t hash(ConstTensor x, const HashPlace& place) {
    const Tensor out = bench_.integers({0, 0});
    add_content_hash(bench_.stream, out, x, place);
    const auto* halves = out.as<std::int32_t>();
    return static_cast<std::uint32_t>(halves[0]) |
           static_cast<std::uint64_t>(static_cast<std::uint32_t>(halves[1])) << 32;
  }
  static HashPlace whole(std::int64_t n) {
    return {.purpose = 7, .first_index = 0, .first = 0, .columns = n, .stride = n};
  }

  Bench bench_;
};
INSTANTIATE_TEST_SUITE_P(types, ContentHashes, kFloatTypes, dtype_name);

TEST_P(ContentHashes, of_pieces_add_up_to_that_of_the_whole) {
  constexpr std::int64_t kRows = 12, kColumns = 40, kHalf = kColumns / 2, kAll = kRows * kColumns;
  const auto x = bench_.random({kRows, kColumns}, GetParam());
  const auto all = hash(x, whole(kAll));
  // Flat pieces, of any size.
  std::uint64_t sum = 0;
  const auto flat = x.view({kAll});
  for (std::int64_t begin = 0, n = 1; begin < kAll; begin += n, n = std::min(n + 7, kAll - begin)) {
    auto place = whole(kAll);
    place.first_index = begin;
    sum += hash(flat.rows(begin, n), place);
  }
  EXPECT_EQ(sum, all);
  // Halves of the columns, one of them in two pieces.
  sum = 0;
  for (std::int64_t part = 0; part < 2; ++part) {
    const auto half = bench_.poisoned({kRows * kHalf}, GetParam());
    for (std::int64_t i = 0; i < kRows * kHalf; ++i)
      Bench::set(half, i, get(x, i / kHalf * kColumns + part * kHalf + i % kHalf));
    for (const auto& [begin, n] :
         {std::pair<std::int64_t, std::int64_t>{0, 33}, {33, kRows * kHalf - 33}})
      sum += hash(half.rows(begin, n), {7, begin, part * kHalf, kHalf, kColumns});
  }
  EXPECT_EQ(sum, all);
}
TEST_P(ContentHashes, change_if_a_bit_flips_or_elements_are_swapped) {
  constexpr std::int64_t kSize = 37;
  const auto x = bench_.random({kSize}, GetParam());
  const auto before = hash(x, whole(kSize));
  for (std::int64_t bit = 0; bit < 8 * x.bytes(); ++bit) {
    const auto flip = [&] { x.data[bit / 8] ^= std::byte{1} << (bit % 8); };
    flip();
    EXPECT_NE(hash(x, whole(kSize)), before) << bit;
    flip();
  }
  const double first = get(x, 0), second = get(x, 1);
  ASSERT_NE(first, second);
  Bench::set(x, 0, second);
  Bench::set(x, 1, first);
  EXPECT_NE(hash(x, whole(kSize)), before);
  Bench::set(x, 0, first);
  Bench::set(x, 1, second);
  EXPECT_EQ(hash(x, whole(kSize)), before);
  auto other = whole(kSize);
  ++other.purpose;
  EXPECT_NE(hash(x, other), before);
}
TEST(ContentHash, rejects_unsupported_arguments) {
  Bench b;
  const Tensor out = b.integers({0, 0}), three = b.integers({0, 0, 0});
  EXPECT_THROW(add_content_hash(b.stream, out, three, {}), Error);
  EXPECT_THROW(add_content_hash(b.stream, three, b.random({3}, DType::fp32), {}), Error);
  EXPECT_THROW(add_content_hash(b.stream, out, b.random({3}, DType::fp32), {.columns = 0}), Error);
}

}  // namespace lockstep::testing::small_operators_test
