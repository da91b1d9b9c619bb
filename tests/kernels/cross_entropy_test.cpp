#include "kernels/cross_entropy.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "tests/kernels/draw.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/reference_cross_entropy.h"
#include "tests/testing.h"

namespace lockstep::testing::cross_entropy_test {

struct Size {
  std::int64_t rows, columns, vocabulary;
};
constexpr Size kSizes[] = {{1, 1, 1},     {3, 16, 16},     {5, 40, 33},
                           {9, 300, 257}, {2, 9000, 8999}, {4, 50304, 50257}};

// Every fifth row is masked; the padding holds what must never count.
std::vector<std::int32_t> draw_targets(std::int64_t rows, std::int64_t vocabulary) {
  std::vector<std::int32_t> targets;
  for (std::int64_t n = 0; n < rows; ++n)
    targets.push_back(
        n % 5 == 4 ? -1
                   : static_cast<std::int32_t>(philox(8, 8, static_cast<std::uint64_t>(n))[0] %
                                               static_cast<std::uint64_t>(vocabulary)));
  return targets;
}
void poison_padding(Tensor logits, std::int64_t vocabulary) {
  const auto columns = logits.shape[1];
  for (std::int64_t i = 0; i < logits.elements(); ++i)
    if (i % columns >= vocabulary)
      Bench::set(logits, i, i % 2 == 0 ? std::numeric_limits<double>::quiet_NaN() : 1e30);
}

class CrossEntropyTest : public ::testing::TestWithParam<DType> {};

TEST_P(CrossEntropyTest, losses_and_gradient_equal_the_reference) {
  for (const auto [rows, columns, vocabulary] : kSizes) {
    for (const float z_loss : {0.0f, 1e-2f}) {
      Bench b;
      const auto logits = b.random({rows, columns}, GetParam(), 8);
      const auto before = doubles(logits);
      poison_padding(logits, vocabulary);
      const auto targets = draw_targets(rows, vocabulary);
      const auto losses = b.poisoned({rows}, DType::fp32), plain = b.poisoned({rows}, DType::fp32);
      const CrossEntropy args{.losses = losses,
                              .targets = b.integers(targets),
                              .vocabulary = static_cast<int>(vocabulary),
                              .gradient_scale = 0.125f,
                              .z_loss = z_loss};
      auto evaluation = args;
      evaluation.losses = plain;
      cross_entropy_loss(b.stream, logits, evaluation);
      cross_entropy_gradient(b.stream, logits, args);

      reference::CrossEntropySetting setting{static_cast<std::size_t>(columns),
                                             static_cast<std::size_t>(vocabulary), 0.125,
                                             static_cast<double>(z_loss)};
      const auto what = str(" of ", logits.shape, " z_loss ", z_loss);
      expect_close(losses, reference::cross_entropy(before, targets, setting),
                   tolerance(DType::fp32), "losses" + what);
      expect_close(logits, reference::cross_entropy_gradient(before, targets, setting),
                   tolerance(GetParam()), "gradient" + what);
      setting.z_loss = 0;
      expect_close(plain, reference::cross_entropy(before, targets, setting),
                   tolerance(DType::fp32), "losses of evaluation" + what);
    }
  }
}

TEST_P(CrossEntropyTest, masked_rows_and_padding_have_gradient_zero_whatever_they_held) {
  Bench b;
  const auto logits = b.poisoned({3, 48}, GetParam()), losses = b.poisoned({3}, DType::fp32);
  const auto row = b.random({48}, GetParam());
  std::copy(row.data, row.data + row.bytes(), logits.rows(1, 1).data);
  poison_padding(logits, 40);
  cross_entropy_gradient(b.stream, logits,
                         {.losses = losses, .targets = b.integers({-1, 7, -1}), .vocabulary = 40});
  for (std::int64_t i = 0; i < logits.elements(); ++i) {
    const bool counts = i / 48 == 1 && i % 48 < 40;
    EXPECT_EQ(get(logits, i) != 0, counts) << "element " << i;
  }
  EXPECT_EQ(get(losses, 0), 0);
  EXPECT_GT(get(losses, 1), 0);
  EXPECT_EQ(get(losses, 2), 0);
}

TEST_P(CrossEntropyTest, a_batch_that_is_all_masked_has_no_loss_and_no_gradient) {
  Bench b;
  const auto logits = b.random({4, 20}, GetParam()), losses = b.poisoned({4}, DType::fp32);
  const auto targets = b.integers({-1, -1, -1, -1});
  cross_entropy_gradient(b.stream, logits,
                         {.losses = losses, .targets = targets, .vocabulary = 20});
  for (std::int64_t i = 0; i < logits.elements(); ++i)
    EXPECT_EQ(get(logits, i), 0);
  const auto sum = b.integers({0}).view({1}), valid = b.integers({0});
  const auto loss_sum = b.random({1}, DType::fp32), before = b.copy(loss_sum);
  sum_losses(b.stream, loss_sum, valid, losses, targets);
  expect_bitwise_equal(loss_sum, before, "loss_sum");
  expect_bitwise_equal(valid, sum, "valid_tokens");
}

// A NaN that turned into a small number would let a broken step pass for a good one.
TEST_P(CrossEntropyTest, logits_that_are_not_finite_make_the_loss_nan) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const std::int64_t where : {0, 17, 36}) {
      Bench b;
      const auto logits = b.random({1, 37}, GetParam()), losses = b.poisoned({1}, DType::fp32);
      Bench::set(logits, where, bad);
      const CrossEntropy args{.losses = losses, .targets = b.integers({5}), .vocabulary = 37};
      cross_entropy_loss(b.stream, logits, args);
      EXPECT_TRUE(std::isnan(get(losses, 0))) << bad << " at " << where;
      Bench::set(losses, 0, 0);
      cross_entropy_gradient(b.stream, logits, args);
      EXPECT_TRUE(std::isnan(get(losses, 0))) << bad << " at " << where;
      EXPECT_TRUE(std::isnan(get(logits, 3)));
    }
}

TEST_P(CrossEntropyTest, large_logits_neither_overflow_nor_lose_the_loss) {
  Bench b;
  const auto logits = b.random({1, 37}, GetParam()), losses = b.poisoned({1}, DType::fp32);
  Bench::set(logits, 20, 60000);
  Bench::set(logits, 21, -60000);
  const CrossEntropy args{.losses = losses, .targets = b.integers({21}), .vocabulary = 37};
  const auto before = doubles(logits);
  cross_entropy_gradient(b.stream, logits, args);
  expect_close(losses, {before[20] - before[21]}, 1e-6, "loss");
  EXPECT_EQ(get(logits, 20), 1);
  EXPECT_EQ(get(logits, 21), -1);
  EXPECT_EQ(get(logits, 3), 0);
}

TEST_P(CrossEntropyTest, any_number_of_threads_gives_the_same_bits) {
  Bench b;
  const auto logits = b.random({37, 300}, GetParam(), 4);
  const auto targets = b.integers(draw_targets(37, 300));
  const auto expected = b.copy(logits), first = b.poisoned({37}, DType::fp32);
  cross_entropy_gradient(b.stream, expected,
                         {.losses = first, .targets = targets, .vocabulary = 300});
  for (const int threads : {1, 3}) {
    Stream stream(Device{}, "test", Stream::Mode::immediate, threads);
    const auto x = b.copy(logits), losses = b.poisoned({37}, DType::fp32);
    cross_entropy_gradient(stream, x, {.losses = losses, .targets = targets, .vocabulary = 300});
    expect_bitwise_equal(x, expected, "gradient");
    expect_bitwise_equal(losses, first, "losses");
  }
}

// None, some, nearly all or all of the rows masked.
std::vector<std::int32_t> draw_masked(Draw& draw, std::int64_t rows, std::int64_t vocabulary) {
  const std::int64_t percents[] = {0, 20, 95, 100};
  const auto masked = percents[draw.between(0, 3)];
  std::vector<std::int32_t> targets;
  for (std::int64_t n = 0; n < rows; ++n)
    targets.push_back(draw.between(0, 99) < masked
                          ? -1
                          : static_cast<std::int32_t>(draw.between(0, vocabulary - 1)));
  return targets;
}

// Columns [rank * Vp, (rank + 1) * Vp) of x.
Tensor columns_of_rank(Bench& b, ConstTensor x, std::int64_t Vp, std::int64_t rank) {
  const auto part = b.poisoned({x.shape[0], Vp}, x.dtype);
  for (std::int64_t i = 0; i < part.elements(); ++i)
    Bench::set(part, i, get(x, i / Vp * x.shape[1] + rank * Vp + i % Vp));
  return part;
}

// The parts of each rank's columns, gathered; args.first_column is set for each.
Tensor gather_parts(Bench& b, const std::vector<Tensor>& logits, CrossEntropy args) {
  const auto t = static_cast<std::int64_t>(logits.size()), n = logits.front().shape[0];
  const auto parts = b.poisoned({t, n, 3}, DType::fp32);
  for (std::int64_t rank = 0; rank < t; ++rank) {
    const auto& own = logits[static_cast<std::size_t>(rank)];
    args.first_column = static_cast<int>(rank * own.shape[1]);
    cross_entropy_parts(b.stream, parts.rows(rank, 1).view({n, 3}), own, args);
  }
  return parts;
}

// Over 1 to 5 ranks, of which some may hold padding alone.
void check_ranks(Draw& draw, DType dtype) {
  const auto t = draw.between(1, 5), rows = draw.size(30), Vp = draw.size(600);
  const auto vocabulary = draw.between(1, t * Vp);
  SCOPED_TRACE(str(t, " ranks, rows ", rows, " columns ", Vp, " vocabulary ", vocabulary));
  auto b = draw.bench();
  const auto whole = b.random({rows, t * Vp}, dtype, 8);
  const auto before = doubles(whole);
  poison_padding(whole, vocabulary);
  const auto targets = draw_masked(draw, rows, vocabulary);
  CrossEntropy args{.targets = b.integers(targets),
                    .vocabulary = static_cast<int>(vocabulary),
                    .gradient_scale = 1 / static_cast<float>(draw.between(1, 100)),
                    .z_loss = draw.coin() ? 1e-2f : 0.0f};
  reference::CrossEntropySetting setting{
      static_cast<std::size_t>(t * Vp), static_cast<std::size_t>(vocabulary),
      static_cast<double>(args.gradient_scale), static_cast<double>(args.z_loss)};
  const auto losses = reference::cross_entropy(before, targets, setting);
  const auto gradient = reference::cross_entropy_gradient(before, targets, setting);
  setting.z_loss = 0;
  const auto plain = reference::cross_entropy(before, targets, setting);

  std::vector<Tensor> logits;
  for (std::int64_t rank = 0; rank < t; ++rank)
    logits.push_back(columns_of_rank(b, whole, Vp, rank));
  args.parts = gather_parts(b, logits, args);
  Tensor first;
  for (std::int64_t rank = 0; rank < t; ++rank) {
    const auto own = logits[static_cast<std::size_t>(rank)];
    args.first_column = static_cast<int>(rank * Vp);
    args.losses = b.poisoned({rows}, DType::fp32);
    cross_entropy_loss(b.stream, own, args);
    expect_close(args.losses, plain, tolerance(DType::fp32), "losses of evaluation", 8);
    cross_entropy_gradient(b.stream, own, args);
    expect_close(args.losses, losses, tolerance(DType::fp32), "losses", 8);
    if (rank == 0) first = args.losses;
    expect_bitwise_equal(args.losses, first, "losses of ranks");
    Doubles expected;
    for (std::int64_t i = 0; i < rows * Vp; ++i)
      expected.push_back(gradient[static_cast<std::size_t>(i / Vp * t * Vp + rank * Vp + i % Vp)]);
    expect_close(own, expected, tolerance(dtype), "gradient", setting.gradient_scale);
  }
}
TEST_P(CrossEntropyTest, ranks_with_columns_each_equal_the_reference) {
  few_draws([](Draw& draw) { check_ranks(draw, GetParam()); });
}
TEST_P(CrossEntropyTest, full_ranks_with_columns_each_equal_the_reference) {
  many_draws([](Draw& draw) { check_ranks(draw, GetParam()); });
}

TEST_P(CrossEntropyTest, parts_of_no_columns_and_of_masked_rows_are_neutral) {
  Bench b;
  const auto logits = b.random({3, 16}, GetParam()), parts = b.poisoned({3, 3}, DType::fp32);
  CrossEntropy args{.targets = b.integers({-1, 3, 35}), .vocabulary = 40, .first_column = 32};
  poison_padding(logits, 8);
  const auto lowest = static_cast<double>(std::numeric_limits<float>::lowest());
  cross_entropy_parts(b.stream, parts, logits, args);
  EXPECT_EQ(doubles(parts.rows(0, 1)), (Doubles{lowest, 0, 0}));
  EXPECT_GT(get(parts, 3 + 1), 0.9);  // the largest term alone is 1
  EXPECT_EQ(get(parts, 3 + 2), 0);    // another rank's target
  EXPECT_EQ(get(parts, 6 + 2), get(logits, 2 * 16 + 3));
  args.first_column = 48;
  cross_entropy_parts(b.stream, parts, logits, args);
  for (std::int64_t n = 0; n < 3; ++n)
    EXPECT_EQ(doubles(parts.rows(n, 1)), (Doubles{lowest, 0, 0}));
}

// Of another rank too: all must skip the step.
TEST_P(CrossEntropyTest, logits_of_one_rank_that_are_not_finite_make_the_loss_of_all_nan) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {std::nan(""), infinity})
    for (const std::int64_t where : {0, 17, 36}) {
      Bench b;
      std::vector<Tensor> logits{b.random({1, 37}, GetParam()), b.random({1, 37}, GetParam())};
      Bench::set(logits[1], where, bad);
      CrossEntropy args{
          .losses = b.poisoned({1}, DType::fp32), .targets = b.integers({5}), .vocabulary = 74};
      args.parts = gather_parts(b, logits, args);
      Bench::set(args.losses, 0, 0);
      cross_entropy_loss(b.stream, logits[0], args);
      EXPECT_TRUE(std::isnan(get(args.losses, 0))) << bad << " at " << where;
      Bench::set(args.losses, 0, 0);
      cross_entropy_gradient(b.stream, logits[0], args);
      EXPECT_TRUE(std::isnan(get(args.losses, 0))) << bad << " at " << where;
      EXPECT_TRUE(std::isnan(get(logits[0], 3)));
    }
  // But -infinity is a token that cannot come: also where a rank has no other.
  Bench b;
  std::vector<Tensor> logits{b.random({1, 37}, GetParam()), b.random({1, 37}, GetParam())};
  for (std::int64_t v = 0; v < 37; ++v)
    Bench::set(logits[1], v, -infinity);
  CrossEntropy args{
      .losses = b.poisoned({1}, DType::fp32), .targets = b.integers({5}), .vocabulary = 74};
  args.parts = gather_parts(b, logits, args);
  const auto alone = reference::cross_entropy(doubles(logits[0]), {5}, {37, 37});
  cross_entropy_loss(b.stream, logits[0], args);
  expect_close(args.losses, alone, tolerance(DType::fp32), "loss", 1);
}

void check_random(Draw& draw, DType dtype) {
  const auto rows = draw.size(100), columns = draw.size(2000);
  const auto vocabulary = draw.between(std::max<std::int64_t>(1, columns - 40), columns);
  SCOPED_TRACE(str("rows ", rows, " columns ", columns, " vocabulary ", vocabulary));
  auto b = draw.bench();
  const auto logits = b.random({rows, columns}, dtype, 8);
  const auto before = doubles(logits);
  poison_padding(logits, vocabulary);
  const auto targets = draw_masked(draw, rows, vocabulary);
  const CrossEntropy args{.losses = b.poisoned({rows}, DType::fp32),
                          .targets = b.integers(targets),
                          .vocabulary = static_cast<int>(vocabulary),
                          .gradient_scale = 1 / static_cast<float>(draw.between(1, 100)),
                          .z_loss = draw.coin() ? 1e-2f : 0.0f};
  reference::CrossEntropySetting setting{
      static_cast<std::size_t>(columns), static_cast<std::size_t>(vocabulary),
      static_cast<double>(args.gradient_scale), static_cast<double>(args.z_loss)};
  auto plain = setting;
  plain.z_loss = 0;
  cross_entropy_loss(b.stream, logits, args);
  expect_close(args.losses, reference::cross_entropy(before, targets, plain),
               tolerance(DType::fp32), "losses of evaluation", 8);
  cross_entropy_gradient(b.stream, logits, args);
  const auto losses = reference::cross_entropy(before, targets, setting);
  expect_close(args.losses, losses, tolerance(DType::fp32), "losses", 8);
  expect_close(logits, reference::cross_entropy_gradient(before, targets, setting),
               tolerance(dtype), "gradient", setting.gradient_scale);

  const auto sum = b.random({1}, DType::fp32, 100), count = b.integers({3});
  double expected = get(sum, 0);
  for (const double loss : losses)
    expected += loss;
  sum_losses(b.stream, sum, count, args.losses, args.targets);
  expect_close(sum, {expected}, tolerance(DType::fp32), "sum of losses", 100);
  EXPECT_EQ(get(count, 0),
            static_cast<double>(3 + rows - std::count(targets.begin(), targets.end(), -1)));
}
TEST_P(CrossEntropyTest, random_shapes_equal_the_reference) {
  few_draws([](Draw& draw) { check_random(draw, GetParam()); });
}
TEST_P(CrossEntropyTest, full_random_shapes_equal_the_reference) {
  many_draws([](Draw& draw) { check_random(draw, GetParam()); });
}

TEST(SumLosses, counts_valid_tokens_and_adds_to_what_is_there) {
  Bench b;
  constexpr std::int64_t kRows = 100000;
  std::vector<std::int32_t> targets;
  double expected = 1000;
  std::int32_t valid = 5;
  const auto losses = b.random({kRows}, DType::fp32, 10);
  for (std::int64_t n = 0; n < kRows; ++n) {
    targets.push_back(n % 3 == 0 ? -1 : static_cast<std::int32_t>(n));
    if (n % 3 == 0) continue;
    expected += get(losses, n);
    ++valid;
  }
  const auto sum = b.poisoned({1}, DType::fp32), count = b.integers({5});
  Bench::set(sum, 0, 1000);
  sum_losses(b.stream, sum, count, losses, b.integers(targets));
  EXPECT_NEAR(get(sum, 0), expected, std::abs(expected) * 1.2e-7);
  EXPECT_EQ(get(count, 0), valid);
}

TEST(CrossEntropyContract, wrong_arguments_are_refused_by_name) {
  Bench b;
  const auto logits = b.random({2, 8}, DType::fp32), losses = b.poisoned({2}, DType::fp32);
  const auto call = [&](const std::vector<std::int32_t>& targets, int vocabulary) -> std::string {
    try {
      cross_entropy_loss(
          b.stream, logits,
          {.losses = losses, .targets = b.integers(targets), .vocabulary = vocabulary});
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(call({1, 2}, 8), "accepted");
  EXPECT_NE(call({1, 2}, 9).find("vocabulary is 9, expected 1 to 8"), std::string::npos);
  EXPECT_NE(call({1, 2, 3}, 8).find("targets is [3], expected [2]"), std::string::npos);
  const auto refusal = [&](const CrossEntropy& args) -> std::string {
    try {
      cross_entropy_gradient(b.stream, logits, args);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  CrossEntropy args{
      .losses = losses, .targets = b.integers({1, 2}), .vocabulary = 8, .first_column = 8};
  EXPECT_NE(refusal(args).find("first_column is 8, expected 0 without the parts"),
            std::string::npos);
  args.parts = b.random({2, 3, 3}, DType::fp32);
  EXPECT_NE(refusal(args).find("parts is [2, 3, 3], expected [2, 2, 3]"), std::string::npos);
  EXPECT_NE(call({1, 7}, 7).find("target 7 of row 1 is outside the vocabulary of 7"),
            std::string::npos);
}

TEST(CrossEntropyContract, the_reference_gradient_is_the_derivative_of_the_reference) {
  Bench b;
  auto logits = doubles(b.random({3, 7}, DType::fp32, 2));
  const std::vector<std::int32_t> targets{4, -1, 0};
  const reference::CrossEntropySetting setting{7, 5, 1, 0.3};
  const auto loss = [&] {
    double sum = 0;
    for (const double l : reference::cross_entropy(logits, targets, setting))
      sum += l;
    return sum;
  };
  const auto g = reference::cross_entropy_gradient(logits, targets, setting);
  expect_close(g, finite_differences(logits, loss), 1e-7, "gradient");
}

INSTANTIATE_TEST_SUITE_P(types, CrossEntropyTest, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::cross_entropy_test
