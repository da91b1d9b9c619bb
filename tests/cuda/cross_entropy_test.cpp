#include "kernels/cross_entropy.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::cross_entropy_test {

struct CrossEntropyCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, CrossEntropyCuda, kFloatTypes, dtype_name);

// NaNs and huge numbers behind the vocabulary, which must never count.
void poison_padding(Twins& t, const Twin& logits, std::int64_t vocabulary) {
  for (std::int64_t i = 0; i < logits.host.elements(); ++i)
    if (i % logits.host.shape[1] >= vocabulary)
      Bench::set(logits.host, i, i % 2 == 0 ? std::nan("") : 1e30);
  t.upload(logits.device, logits.host);
}

Twin draw_targets(Twins& t, Draw& draw, std::int64_t rows, std::int64_t vocabulary) {
  std::vector<std::int32_t> targets;
  for (std::int64_t n = 0; n < rows; ++n)
    targets.push_back(
        static_cast<std::int32_t>(draw.between(0, 3) == 0 ? -1 : draw.between(0, vocabulary - 1)));
  return t.integers(targets, {rows});
}

struct Size {
  std::int64_t rows, columns, vocabulary;
};
Size draw_size(Draw& draw) {
  const bool packs = draw.coin();  // rows of packs, or of any size
  const auto rows = draw.between(0, CudaTest::most(4, 500));
  const auto columns = packs ? 8 * draw.between(1, 2500) : draw.size(3000);
  return {rows, columns, draw.between(std::max<std::int64_t>(1, columns - 40), columns)};
}

TEST_P(CrossEntropyCuda, losses_and_gradient_equal_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto size = draw_size(draw);
    const auto rows = size.rows, columns = size.columns, vocabulary = size.vocabulary;
    SCOPED_TRACE(str("rows ", rows, " columns ", columns, " vocabulary ", vocabulary));
    const auto logits = t.random({rows, columns}, GetParam(), 8);
    poison_padding(t, logits, vocabulary);
    const auto targets = draw_targets(t, draw, rows, vocabulary);
    const auto losses = t.poisoned({rows}, DType::fp32), plain = t.poisoned({rows}, DType::fp32);
    const float z_loss = draw.coin() ? 1e-2f : 0.0f;
    t.run([&](const Side& on) {
      CrossEntropy args{.losses = on(plain),
                        .targets = on(targets),
                        .vocabulary = static_cast<int>(vocabulary),
                        .gradient_scale = 0.125f,
                        .z_loss = z_loss};
      cross_entropy_loss(on.stream, on(logits), args);
      args.losses = on(losses);
      cross_entropy_gradient(on.stream, on(logits), args);
    });
    t.expect_close(plain, "losses of evaluation", 8);
    t.expect_close(losses, "losses", 8);
    t.expect_close(logits, "gradient", 0.125);
  });
}

// Over 1 to 4 ranks, of which some may hold padding alone.
TEST_P(CrossEntropyCuda, ranks_with_columns_each_equal_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto ranks = draw.between(1, 4), rows = draw.between(0, most(4, 300)),
               columns = draw.coin() ? 8 * draw.between(1, 900) : draw.size(1000);
    const auto vocabulary = draw.between(1, ranks * columns);
    SCOPED_TRACE(
        str(ranks, " ranks, rows ", rows, " columns ", columns, " vocabulary ", vocabulary));
    const auto targets = draw_targets(t, draw, rows, vocabulary);
    const auto parts = t.poisoned({ranks, rows, 3}, DType::fp32);
    std::vector<Twin> logits, losses, plain;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      logits.push_back(t.random({rows, columns}, GetParam(), 8));
      poison_padding(t, logits.back(), vocabulary - rank * columns);
      losses.push_back(t.poisoned({rows}, DType::fp32));
      plain.push_back(t.poisoned({rows}, DType::fp32));
    }
    const float z_loss = draw.coin() ? 1e-2f : 0.0f;
    t.run([&](const Side& on) {
      CrossEntropy args{.targets = on(targets),
                        .vocabulary = static_cast<int>(vocabulary),
                        .gradient_scale = 0.125f,
                        .z_loss = z_loss};
      const auto each_rank = [&](auto&& call) {
        for (std::size_t r = 0; r < logits.size(); ++r) {
          args.first_column = static_cast<int>(static_cast<std::int64_t>(r) * columns);
          call(r, on(logits[r]));
        }
      };
      each_rank([&](std::size_t r, Tensor own) {
        const auto to = on(parts).rows(static_cast<std::int64_t>(r), 1).view({rows, 3});
        cross_entropy_parts(on.stream, to, own, args);
      });
      args.parts = on(parts);
      each_rank([&](std::size_t r, Tensor own) {
        args.losses = on(plain[r]);
        cross_entropy_loss(on.stream, own, args);
        args.losses = on(losses[r]);
        cross_entropy_gradient(on.stream, own, args);
      });
    });
    t.expect_close(parts, "parts");
    for (std::size_t r = 0; r < logits.size(); ++r) {
      t.expect_close(plain[r], "losses of evaluation", 8);
      t.expect_close(losses[r], "losses", 8);
      t.expect_close(logits[r], "gradient", 0.125);
      expect_bitwise_equal(t.download(losses[r].device), t.download(losses[0].device),
                           "losses of ranks");
    }
  });
}

TEST_P(CrossEntropyCuda, rows_of_a_tensor_are_taken_alone) {
  Twins t(1);
  const auto logits = t.random({4, 33}, GetParam(), 4), losses = t.poisoned({4}, DType::fp32);
  const auto targets = t.integers({0, 32, -1, 7});
  t.run([&](const Side& on) {
    cross_entropy_gradient(
        on.stream, on(logits).rows(1, 2),
        {.losses = on(losses).rows(1, 2), .targets = on(targets).rows(1, 2), .vocabulary = 33});
  });
  const Twin taken{logits.host.rows(1, 2), logits.device.rows(1, 2)};
  t.expect_close(taken, "gradient", 1);
  const Tensor actual = t.download(losses.device);
  EXPECT_TRUE(std::isnan(get(actual, 0)) && std::isnan(get(actual, 3)));
  EXPECT_EQ(get(actual, 2), 0);
}

TEST_P(CrossEntropyCuda, logits_that_are_not_finite_make_the_loss_nan) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const std::int64_t where : {0, 17, 36}) {
      Twins t(1);
      const auto logits = t.random({1, 40}, GetParam()), losses = t.random({1}, DType::fp32);
      Bench::set(logits.host, where, bad);
      t.upload(logits.device, logits.host);
      const auto targets = t.integers({5});
      t.run([&](const Side& on) {
        cross_entropy_gradient(on.stream, on(logits),
                               {.losses = on(losses), .targets = on(targets), .vocabulary = 37});
      });
      EXPECT_TRUE(std::isnan(get(t.download(losses.device), 0))) << bad << " at " << where;
      EXPECT_TRUE(std::isnan(get(t.download(logits.device), 3))) << bad << " at " << where;
    }
}

TEST_P(CrossEntropyCuda, logits_of_another_rank_that_are_not_finite_make_the_loss_nan) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {std::nan(""), infinity, -infinity}) {
    Twins t(1);
    const auto logits = t.random({1, 40}, GetParam()), other = t.random({1, 40}, GetParam());
    const auto losses = t.random({1}, DType::fp32), parts = t.poisoned({2, 1, 3}, DType::fp32);
    for (std::int64_t v = 0; v < 40; ++v)
      if (v == 17 || bad < 0) Bench::set(other.host, v, bad);
    t.upload(other.device, other.host);
    const auto targets = t.integers({5});
    t.run([&](const Side& on) {
      CrossEntropy args{.losses = on(losses), .targets = on(targets), .vocabulary = 80};
      cross_entropy_parts(on.stream, on(parts).rows(0, 1).view({1, 3}), on(logits), args);
      args.first_column = 40;
      cross_entropy_parts(on.stream, on(parts).rows(1, 1).view({1, 3}), on(other), args);
      args.first_column = 0;
      args.parts = on(parts);
      cross_entropy_gradient(on.stream, on(logits), args);
    });
    // A token of -infinity cannot come, which is not an error.
    EXPECT_EQ(std::isnan(get(t.download(losses.device), 0)), !(bad < 0)) << bad;
    EXPECT_EQ(std::isnan(get(t.download(logits.device), 3)), !(bad < 0)) << bad;
  }
}

TEST_P(CrossEntropyCuda, large_logits_neither_overflow_nor_lose_the_loss) {
  Twins t(1);
  const auto logits = t.random({1, 40}, GetParam()), losses = t.poisoned({1}, DType::fp32);
  Bench::set(logits.host, 20, 60000);
  Bench::set(logits.host, 21, -60000);
  t.upload(logits.device, logits.host);
  const auto targets = t.integers({21});
  t.run([&](const Side& on) {
    cross_entropy_gradient(on.stream, on(logits),
                           {.losses = on(losses), .targets = on(targets), .vocabulary = 37});
  });
  t.expect_equal(losses, "losses");
  t.expect_equal(logits, "gradient");
}

TEST(SumLossesCuda, sum_and_count_equal_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto rows = draw.coin() ? draw.between(0, 3) : draw.size(CudaTest::most(5000, 200000));
    const auto losses = t.random({rows}, DType::fp32, 10);
    const auto targets = draw_targets(t, draw, rows, 50000);
    const auto sum = t.random({1}, DType::fp32, 100), count = t.integers({5});
    t.run([&](const Side& on) {
      sum_losses(on.stream, on(sum), on(count), on(losses), on(targets));
    });
    t.expect_close(sum, "sum", 10);
    t.expect_equal(count, "count");
  });
}

}  // namespace lockstep::testing::cross_entropy_test
