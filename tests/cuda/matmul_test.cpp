#include "kernels/matmul.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::matmul_test {

struct MatmulCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, MatmulCuda, kFloatTypes, dtype_name);

std::int64_t draw_columns(Draw& draw) {
  return draw.coin() ? draw.size(24) : 8 * draw.between(1, 4);
}

TEST_P(MatmulCuda, forward_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto N = draw.size(most(20, 600)), I = draw_columns(draw), O = draw_columns(draw);
    const auto x = t.random({N, I}, GetParam()), weight = t.random({O, I}, GetParam());
    const auto out = draw.coin() ? GetParam() : DType::fp32;
    const auto y = t.poisoned({N, O}, out);
    const bool biased = draw.coin(), gelu = draw.coin(), adds = draw.coin();
    const auto bias = biased ? t.random({O}, GetParam()) : Twin{};
    const auto pre_gelu = gelu ? t.poisoned({N, O}, out) : Twin{};
    const auto residual = adds ? t.random({N, O}, out) : Twin{};
    t.run([&](const Side& on) {
      matmul_forward(on.stream, on.scratch, on(y), on(x), on(weight),
                     {.bias = on(bias), .pre_gelu = on(pre_gelu), .residual = on(residual)});
    });
    // Where sums are of bf16, so are the roundings in between.
    const double magnitude = std::sqrt(static_cast<double>(I));
    t.expect_close(y, "y", magnitude);
    if (gelu) t.expect_close(pre_gelu, "pre_gelu", magnitude);
  });
}

TEST_P(MatmulCuda, backward_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto N = draw.size(most(40, 600)), I = draw_columns(draw), O = draw_columns(draw);
    const auto x = t.random({N, I}, GetParam()), weight = t.random({O, I}, GetParam());
    const auto dy = t.random({N, O}, GetParam()), dx = t.poisoned({N, I}, GetParam());
    const auto pre_gelu = draw.coin() ? t.random({N, I}, GetParam(), 3.0f) : Twin{};
    const auto dweight = t.random({O, I}, DType::fp32);
    const auto dbias = draw.coin() ? t.random({O}, DType::fp32) : Twin{};
    t.run([&](const Side& on) {
      matmul_backward_weight(on.stream, on.scratch, on(dweight), on(dbias), on(dy), on(x));
      matmul_backward_input(on.stream, on.scratch, on(dx), on(dy), on(weight), on(pre_gelu));
    });
    t.expect_close(dx, "dx", std::sqrt(static_cast<double>(O)));
    t.expect_close(dweight, "dweight", std::sqrt(static_cast<double>(N)));
    if (dbias.host) t.expect_close(dbias, "dbias", std::sqrt(static_cast<double>(N)));
  });
}

TEST_P(MatmulCuda, no_tokens_change_nothing) {
  Twins t(1);
  const auto x = t.random({0, 16}, GetParam()), weight = t.random({8, 16}, GetParam());
  const auto y = t.poisoned({0, 8}, GetParam()), dx = t.poisoned({0, 16}, GetParam());
  const auto bias = t.random({8}, GetParam());
  const auto dweight = t.random({8, 16}, DType::fp32), dbias = t.random({8}, DType::fp32);
  t.run([&](const Side& on) {
    matmul_forward(on.stream, on.scratch, on(y), on(x), on(weight), {.bias = on(bias)});
    matmul_backward_weight(on.stream, on.scratch, on(dweight), on(dbias), on(y), on(x));
    matmul_backward_input(on.stream, on.scratch, on(dx), on(y), on(weight));
  });
  t.expect_equal(dweight, "dweight");
  t.expect_equal(dbias, "dbias");
}

}  // namespace lockstep::testing::matmul_test
