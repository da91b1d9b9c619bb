#include "kernels/rmsnorm.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::rmsnorm_test {

struct RmsNormCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, RmsNormCuda, kFloatTypes, dtype_name);

TEST_P(RmsNormCuda, forward_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto N = draw.size(most(20, 5000)), D = draw_row_width(draw);
    const bool adds = draw.coin();
    const auto x = t.random({N, D}, GetParam()), weight = t.random({D}, GetParam());
    const auto residual = adds ? t.random({N, D}, GetParam()) : Twin{};
    const auto sum = adds ? t.poisoned({N, D}, GetParam()) : Twin{};
    const auto y = t.poisoned({N, D}, GetParam()), rstd = t.poisoned({N}, DType::fp32);
    const auto absmax = t.random({1}, DType::fp32, 9);
    t.run([&](const Side& on) {
      rmsnorm_forward(on.stream, {on(y), on(rstd), on(sum), on(x), on(residual), on(weight), 1e-5f,
                                  on(absmax)});
    });
    t.expect_close(y, "y");
    expect_absmax(t, absmax, y);
    t.expect_close(rstd, "rstd");
    if (adds) t.expect_equal(sum, "sum");
  });
}

void check_backward(Draw& draw, std::int64_t N, std::int64_t D, DType dtype) {
  Twins t(draw.seed());
  const auto dy = t.random({N, D}, dtype), s = t.random({N, D}, dtype);
  const auto weight = t.random({D}, dtype);
  const auto rstd = t.random({N}, DType::fp32);
  const auto dx = t.random({N, D}, dtype), dweight = t.random({D}, DType::fp32);
  const auto absmax = t.random({1}, DType::fp32, 9);
  t.run([&](const Side& on) {
    rmsnorm_backward(on.stream, on.scratch,
                     {on(dx), on(dweight), on(dy), on(s), on(rstd), on(weight), on(absmax)});
  });
  expect_absmax(t, absmax, dx);
  t.expect_close(dx, "dx", 1.0);
  t.expect_close(dweight, "dweight", std::sqrt(static_cast<double>(N)));
}

TEST_P(RmsNormCuda, backward_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    const auto N = draw.size(most(40, 5000));
    check_backward(draw, N, draw_row_width(draw), GetParam());
  });
}

// Rows that have 8 packs a thread, of a full pack and of one element.
TEST_P(RmsNormCuda, backward_of_long_rows_equals_the_cpu_kernel) {
  for_seeds(1, 1, [&](Draw& draw) {
    check_backward(draw, 3, 8 * 1030, GetParam());
    check_backward(draw, 3, 1101, GetParam());
  });
}

}  // namespace lockstep::testing::rmsnorm_test
