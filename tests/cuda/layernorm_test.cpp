#include "kernels/layernorm.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::layernorm_test {

struct LayerNormCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, LayerNormCuda, kFloatTypes, dtype_name);

TEST_P(LayerNormCuda, forward_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto N = draw.size(most(20, 5000)), D = draw_row_width(draw);
    const bool adds = draw.coin();
    const auto x = t.random({N, D}, GetParam()), weight = t.random({D}, GetParam());
    const auto bias = t.random({D}, GetParam());
    const auto residual = adds ? t.random({N, D}, GetParam()) : Twin{};
    const auto sum = adds ? t.poisoned({N, D}, GetParam()) : Twin{};
    const auto y = t.poisoned({N, D}, GetParam()), stats = t.poisoned({N, 2}, DType::fp32);
    const auto absmax = t.random({1}, DType::fp32, 9);
    t.run([&](const Side& on) {
      layernorm_forward(on.stream, {.y = on(y),
                                    .stats = on(stats),
                                    .sum = on(sum),
                                    .x = on(x),
                                    .residual = on(residual),
                                    .weight = on(weight),
                                    .bias = on(bias),
                                    .absmax = on(absmax)});
    });
    expect_absmax(t, absmax, y);
    t.expect_close(y, "y");
    // A row of one element has a variance of nothing but rounding.
    if (D > 1) t.expect_close(stats, "stats");
    if (adds) t.expect_equal(sum, "sum");
  });
}

void check_backward(Draw& draw, std::int64_t N, std::int64_t D, DType dtype) {
  Twins t(draw.seed());
  const auto dy = t.random({N, D}, dtype), s = t.random({N, D}, dtype);
  const auto weight = t.random({D}, dtype), stats = t.random({N, 2}, DType::fp32);
  const auto dx = t.random({N, D}, dtype);
  const auto dweight = t.random({D}, DType::fp32), dbias = t.random({D}, DType::fp32);
  const auto absmax = t.random({1}, DType::fp32, 9);
  t.run([&](const Side& on) {
    layernorm_backward(on.stream, on.scratch,
                       {.dx = on(dx),
                        .dweight = on(dweight),
                        .dbias = on(dbias),
                        .dy = on(dy),
                        .s = on(s),
                        .stats = on(stats),
                        .weight = on(weight),
                        .absmax = on(absmax)});
  });
  expect_absmax(t, absmax, dx);
  const auto terms = std::sqrt(static_cast<double>(N));
  t.expect_close(dx, "dx", 1.0);
  t.expect_close(dweight, "dweight", terms);
  t.expect_close(dbias, "dbias", terms);
}

TEST_P(LayerNormCuda, backward_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    const auto N = draw.size(most(40, 5000));
    check_backward(draw, N, draw_row_width(draw), GetParam());
  });
}

// Rows that have 8 packs a thread, of a full pack and of one element.
TEST_P(LayerNormCuda, backward_of_long_rows_equals_the_cpu_kernel) {
  for_seeds(1, 1, [&](Draw& draw) {
    check_backward(draw, 3, 8 * 1030, GetParam());
    check_backward(draw, 3, 1101, GetParam());
  });
}

}  // namespace lockstep::testing::layernorm_test
