#include "kernels/gelu.h"
#include "kernels/swiglu.h"
#include "tests/cuda/twins.h"

namespace lockstep::testing::activation_test {

struct ActivationCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, ActivationCuda, kFloatTypes, dtype_name);

TEST_P(ActivationCuda, gelu_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto n = draw.size(most(5000, 5000000));
    const auto x = t.random({n}, GetParam(), 6.0f), y = t.poisoned({n}, GetParam());
    const auto dy = t.random({n}, GetParam()), dx = t.poisoned({n}, GetParam());
    const auto in_place = t.random({n}, GetParam());
    const auto y_most = t.random({1}, DType::fp32, 9), dx_most = t.random({1}, DType::fp32, 9);
    t.run([&](const Side& on) {
      gelu_forward(on.stream, on(y), on(x), on(y_most));
      gelu_backward(on.stream, on(dx), on(dy), on(x), on(dx_most));
      gelu_backward(on.stream, on(in_place), on(in_place), on(x));
    });
    t.expect_close(y, "y");
    t.expect_close(dx, "dx");
    t.expect_close(in_place, "dx in the place of dy");
    expect_absmax(t, y_most, y);
    expect_absmax(t, dx_most, dx);
  });
}

TEST_P(ActivationCuda, swiglu_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto N = draw.size(most(12, 5000));
    const auto F = draw.coin() ? draw.size(80) : 8 * draw.between(1, 300);
    const auto gate_up = t.random({N, 2 * F}, GetParam(), 6.0f);
    const auto hidden = t.poisoned({N, F}, GetParam()), dhidden = t.random({N, F}, GetParam());
    const auto dgate_up = t.poisoned({N, 2 * F}, GetParam());
    const auto in_place = t.random({N, 2 * F}, GetParam());
    const auto most_hidden = t.random({1}, DType::fp32, 9);
    const auto most_gradient = t.random({1}, DType::fp32, 9);
    t.run([&](const Side& on) {
      swiglu_forward(on.stream, on(hidden), on(gate_up), on(most_hidden));
      swiglu_backward(on.stream, on(dgate_up), on(dhidden), on(gate_up), on(most_gradient));
      swiglu_backward(on.stream, on(in_place), on(dhidden), on(in_place));
    });
    t.expect_close(hidden, "hidden");
    t.expect_close(dgate_up, "dgate_up");
    t.expect_close(in_place, "dgate_up in the place of gate_up");
    expect_absmax(t, most_hidden, hidden);
    expect_absmax(t, most_gradient, dgate_up);
  });
}

}  // namespace lockstep::testing::activation_test
