#include "kernels/reduce.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::reduce_test {

struct ReduceCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, ReduceCuda, kFloatTypes, dtype_name);

void squares_of(const Side& on, Tensor out, ConstTensor x) {
  sum_of_squares(on.stream, on.scratch, out, {&x, 1});
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

// Plain fp32 would lose 1e-4 of a sum of this many equal squares.
TEST(ReduceCuda, long_sums_lose_no_precision) {
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
