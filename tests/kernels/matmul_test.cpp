#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference.h"

namespace lockstep::testing::matmul_test {

TEST(Matmul, mismatched_shapes_are_rejected_by_name) {
  Bench b;
  const auto fp32 = DType::fp32, bf16 = DType::bf16;
  const auto x = b.random({4, 8}, fp32), weight = b.random({6, 8}, fp32);
  const auto y = b.random({4, 6}, fp32), other = b.random({6, 9}, fp32);
  auto& s = b.stream;
  auto& a = b.arena;
  const auto forward = [&](const Tensor& to, const Tensor& of, const Tensor& by,
                           const MatmulEpilogue& epilogue = {}) {
    return [&, to, of, by, epilogue] { matmul_forward(s, a, to, of, by, epilogue); };
  };
  const auto five = b.random({5}, fp32), seven = b.random({7}, fp32);
  expect_refused("weight is [6, 9], expected [6, 8]", forward(y, x, other));
  expect_refused("y is [4, 8], expected [4, 6]", forward(x, x, weight));
  expect_refused("bias is [5], expected [6]", forward(y, x, weight, {.bias = five}));
  expect_refused("y is the residual, expected another tensor beside pre_gelu",
                 forward(y, x, weight, {.pre_gelu = b.random({4, 6}, fp32), .residual = y}));
  expect_refused("y is bf16, expected fp32", forward(b.random({4, 6}, bf16), x, weight));
  expect_refused("x is [32], expected [N, I]", forward(y, x.view({32}), weight));
  expect_refused("x is [4, 0], expected columns",
                 forward(y, b.random({4, 0}, fp32), b.random({6, 0}, fp32)));
  expect_refused("dx is [6, 9], expected [4, 8]",
                 [&] { matmul_backward_input(s, a, other, y, weight); });
  expect_refused("pre_gelu is [6, 9], expected [4, 8]",
                 [&] { matmul_backward_input(s, a, x, y, weight, other); });
  expect_refused("dweight is [6, 9], expected [6, 8]",
                 [&] { matmul_backward_weight(s, a, other, {}, y, x); });
  expect_refused("dbias is [7], expected [6]",
                 [&] { matmul_backward_weight(s, a, weight, seven, y, x); });
}

TEST(Matmul, the_reference_gradients_are_the_derivatives_of_the_reference) {
  Bench b;
  const reference::MatmulSize s{3, 5, 4};
  auto x = doubles(b.random({3, 5}, DType::fp32)), weight = doubles(b.random({4, 5}, DType::fp32));
  const auto dy = doubles(b.random({3, 4}, DType::fp32));
  const auto loss = [&] { return reference::dot(dy, reference::matmul(x, weight, s)); };
  expect_close(reference::matmul_dx(dy, weight, s), finite_differences(x, loss), 1e-7, "dx");
  expect_close(reference::matmul_dweight(dy, x, s), finite_differences(weight, loss), 1e-7,
               "dweight");
}

}  // namespace lockstep::testing::matmul_test
