#include "kernels/matmul_fp8.h"

#include "tests/kernels/fp8.h"
#include "tests/kernels/operator_case.h"

namespace lockstep::testing::matmul_fp8_test {

TEST(MatmulFp8, unsupported_arguments_are_rejected_by_name) {
  Bench b;
  const auto make = [&](DType type, Scaling scaling, const Shape& shape) {
    return random_fp8(b, type, scaling, shape);
  };
  const auto e4m3 = DType::fp8_e4m3, e5m2 = DType::fp8_e5m2;
  const auto y = b.poisoned({32, 128}, DType::bf16);
  const auto refused = [&](const char* why, const MatmulFp8& args) {
    expect_refused(why, [&] { matmul_fp8(b.stream, b.arena, args); });
  };
  const auto a = make(e4m3, Scaling::tensor, {32, 128}),
             w = make(e4m3, Scaling::tensor, {128, 128});
  refused("both fp8_e5m2", {.y = y,
                            .a = make(e5m2, Scaling::tensor, {32, 128}),
                            .b = make(e5m2, Scaling::tensor, {128, 128})});
  refused("scales of a and b", {.y = y, .a = a, .b = make(e4m3, Scaling::blocks, {128, 128})});
  refused("scales of a and b", {.y = y,
                                .a = make(e4m3, Scaling::blocks, {32, 128}),
                                .b = make(e4m3, Scaling::blocks, {128, 128})});
  refused("fast sums with scales of rows", {.y = y,
                                            .a = make(e4m3, Scaling::rows, {32, 128}),
                                            .b = make(e4m3, Scaling::rows, {128, 128}),
                                            .fast = true});
  refused("expected multiples of 16, and of 128", {.y = b.poisoned({32, 144}, DType::bf16),
                                                   .a = make(e4m3, Scaling::rows, {32, 128}),
                                                   .b = make(e4m3, Scaling::rows, {144, 128})});
  refused("b is [128, 64], expected [128, 128]",
          {.y = y, .a = a, .b = make(e4m3, Scaling::tensor, {128, 64})});
  refused("y is [32, 64], expected [32, 128]",
          {.y = b.poisoned({32, 64}, DType::bf16), .a = a, .b = w});
  refused("y with a bias is fp32", {.y = b.poisoned({32, 128}, DType::fp32),
                                    .a = a,
                                    .b = w,
                                    .bias = b.random({128}, DType::bf16)});
}

}  // namespace lockstep::testing::matmul_fp8_test
