#include "kernels/reduce.h"

#include "core/integer.h"
#include "tests/cuda/twins.h"

namespace lockstep::testing::reduce_test {

struct ReduceCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, ReduceCuda, kFloatTypes, dtype_name);

// Of packs and of other sizes, of one chunk and of several.
std::int64_t draw_elements(Draw& draw) {
  const auto n = draw.size(CudaTest::most(40000, 4000000));
  return draw.coin() ? n : round_up(n, 8);
}

void squares_of(const Side& on, Tensor out, ConstTensor x) {
  sum_of_squares(on.stream, on.scratch, out, {&x, 1});
}

TEST_P(ReduceCuda, sum_of_squares_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto x = t.random({draw_elements(draw)}, GetParam());
    const auto out = t.random({1}, DType::fp32);
    t.run([&](const Side& on) { squares_of(on, on(out), on(x)); });
    t.expect_close(out, "sum", 1.0);
  });
}

// More than one launch is told.
TEST_P(ReduceCuda, the_sum_of_many_tensors_equals_the_cpu_kernel) {
  for (const bool of_packs : {false, true}) {
    Twins t(1);
    std::vector<Twin> tensors;
    for (std::int64_t i = 0; i < 150; ++i)
      tensors.push_back(t.random({of_packs     ? 8 * (i % 7)
                                  : i % 7 == 3 ? 0
                                               : 5 + 111 * i},
                                 GetParam()));
    tensors.push_back(t.random({20000}, GetParam()));
    const auto out = t.random({1}, DType::fp32);
    t.run([&](const Side& on) {
      std::vector<ConstTensor> all;
      for (const Twin& x : tensors)
        all.push_back(on(x));
      sum_of_squares(on.stream, on.scratch, on(out), all);
    });
    t.expect_close(out, "sum", 1.0);
  }
}

TEST_P(ReduceCuda, absmax_equals_the_cpu_kernel_and_leaves_nans_out) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto n = draw_elements(draw);
    const auto x = t.random({n}, GetParam());
    Bench::set(x.host, draw.between(0, n - 1), -1.5);
    for (auto i = draw.between(0, 9); i < n; i += 3)
      Bench::set(x.host, i, std::nan(""));
    t.upload(x.device, x.host);
    const auto out = t.random({1}, DType::fp32, 4.0f);
    t.run([&](const Side& on) { absmax(on.stream, on(out), on(x)); });
    t.expect_equal(out, "absmax");
  });
}

TEST_P(ReduceCuda, sum_rows_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto C = draw.coin() ? draw.size(80) : 8 * draw.between(1, 40);
    const auto x = t.random({draw.size(600), C}, GetParam()), out = t.random({C}, DType::fp32);
    t.run([&](const Side& on) { sum_rows(on.stream, on.scratch, on(out), on(x)); });
    t.expect_close(out, "sums", 1.0);
  });
}

// A view that begins between packs, and one of nothing.
TEST_P(ReduceCuda, rows_of_a_tensor_are_reduced_alone) {
  for (const auto& range : {std::pair{1, 998}, {3, 1}, {7, 0}}) {
    Twins t(1);
    const auto x = t.random({1000, 24}, GetParam());
    const auto rows = [&](const Side& on) {
      return on(x).view({8000, 3}).rows(range.first, range.second);
    };
    const auto sum = t.random({1}, DType::fp32), most = t.random({1}, DType::fp32, 0.0f);
    t.run([&](const Side& on) {
      squares_of(on, on(sum), rows(on));
      absmax(on.stream, on(most), rows(on));
    });
    t.expect_close(sum, "sum", 1.0);
    t.expect_equal(most, "absmax");
  }
}

TEST_P(ReduceCuda, a_value_that_is_not_finite_makes_the_sum_not_finite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -INFINITY}) {
    Twins t(1);
    const auto x = t.random({20000}, GetParam()), out = t.random({1}, DType::fp32);
    Bench::set(x.host, 19999, static_cast<double>(bad));
    t.upload(x.device, x.host);
    t.run([&](const Side& on) { squares_of(on, on(out), on(x)); });
    EXPECT_FALSE(std::isfinite(get(t.download(out.device), 0)));
  }
}

// fp32 alone would lose 1e-4 of a sum of this many equal squares.
TEST(ReduceCuda, long_sums_lose_nothing) {
  Twins t(1);
  const auto x = t.random({CudaTest::most(1 << 20, 1 << 21)}, DType::fp32, 0.0f);
  for (std::int64_t i = 0; i < x.host.elements(); ++i)
    Bench::set(x.host, i, 0.1);
  t.upload(x.device, x.host);
  const auto out = t.random({1}, DType::fp32, 0.0f);
  t.run([&](const Side& on) { squares_of(on, on(out), on(x)); });
  const double square = static_cast<double>(0.1f) * static_cast<double>(0.1f);
  const double expected = square * static_cast<double>(x.host.elements());
  EXPECT_NEAR(get(t.download(out.device), 0), expected, 1e-6 * expected);
}

}  // namespace lockstep::testing::reduce_test
