#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference.h"

namespace lockstep::testing::cross_entropy_test {

// The padding holds values that would change any result that depends on them.
void poison_padding(Tensor logits, std::int64_t vocabulary) {
  const auto columns = logits.shape[1];
  for (std::int64_t i = 0; i < logits.elements(); ++i)
    if (i % columns >= vocabulary)
      Bench::set(logits, i, i % 2 == 0 ? std::numeric_limits<double>::quiet_NaN() : 1e30);
}

class CrossEntropyTest : public ::testing::TestWithParam<DType> {};

TEST_P(CrossEntropyTest, masked_rows_and_padding_have_gradient_zero_for_any_previous_values) {
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

TEST_P(CrossEntropyTest, parts_without_columns_and_of_masked_rows_are_neutral) {
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

TEST(SumLosses, counts_valid_tokens_and_adds_to_the_previous_sums) {
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
  const auto refused = [&](const char* why, const CrossEntropy& args) {
    expect_refused(why, [&] { cross_entropy_gradient(b.stream, logits, args); });
  };
  const CrossEntropy args{.losses = losses, .targets = b.integers({1, 2}), .vocabulary = 8};
  cross_entropy_loss(b.stream, logits, args);
  auto wrong = args;
  wrong.vocabulary = 9;
  refused("vocabulary is 9, expected 1 to 8", wrong);
  wrong.targets = b.integers({1, 7});
  wrong.vocabulary = 7;
  refused("target 7 of row 1 is outside the vocabulary of 7", wrong);
  expect_refused("target 7 of row 1", [&] { cross_entropy_loss(b.stream, logits, wrong); });
  wrong = args;
  wrong.targets = b.integers({1, 2, 3});
  refused("targets is [3], expected [2]", wrong);
  wrong = args;
  wrong.first_column = 8;
  refused("first_column is 8, expected 0 without the parts", wrong);
  wrong.parts = b.random({2, 3, 3}, DType::fp32);
  refused("parts is [2, 3, 3], expected [2, 2, 3]", wrong);
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
