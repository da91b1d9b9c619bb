#include "kernels/matmul_fp8.h"

#include "tests/kernels/draw.h"
#include "tests/kernels/fp8.h"

namespace lockstep::testing::matmul_fp8_test {

struct Scalings {
  Scaling a, b;
};
class MatmulFp8Test : public ::testing::TestWithParam<Scalings> {};
INSTANTIATE_TEST_SUITE_P(scalings, MatmulFp8Test,
                         ::testing::Values(Scalings{Scaling::tensor, Scaling::tensor},
                                           Scalings{Scaling::rows, Scaling::rows},
                                           Scalings{Scaling::rows, Scaling::blocks}));

// float64 over the values that codes and scales stand for.
Doubles product(const ConstFp8Matrix& a, const ConstFp8Matrix& b, ConstTensor bias,
                ConstTensor residual) {
  const auto R = a.q.shape[0], K = a.q.shape[1], C = b.q.shape[0];
  Doubles y;
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t c = 0; c < C; ++c) {
      double sum = 0;
      for (std::int64_t k = 0; k < K; ++k)
        sum += value_fp8(a, r, k) * value_fp8(b, c, k);
      if (bias) sum += get(bias, c);
      if (residual) sum += get(residual, r * C + c);
      y.push_back(sum);
    }
  return y;
}

TEST_P(MatmulFp8Test, equals_the_product_of_what_the_codes_stand_for) {
  for_seeds(1, 12, [&](Draw& draw) {
    Bench b = draw.bench();
    const auto unit = GetParam().a == Scaling::tensor ? 16 : 128;
    const auto R = 16 * draw.between(1, 6), C = unit * draw.between(1, 2),
               K = unit * draw.between(1, 3);
    const auto types = draw.between(0, 2);  // at most one E5M2
    const auto a =
        random_fp8(b, types == 1 ? DType::fp8_e5m2 : DType::fp8_e4m3, GetParam().a, {R, K});
    const auto w =
        random_fp8(b, types == 2 ? DType::fp8_e5m2 : DType::fp8_e4m3, GetParam().b, {C, K});
    const auto y_type = draw.coin() ? DType::bf16 : DType::fp32;
    const auto bias =
        y_type == DType::bf16 && draw.coin() ? b.random({C}, DType::bf16, 1e5f) : Tensor{};
    const bool adds = draw.coin();
    const auto y = adds ? b.random({R, C}, y_type, 1e6f) : b.poisoned({R, C}, y_type);
    const auto before = adds ? b.copy(y) : Tensor{};
    const auto expected = product(a, w, bias, before);
    matmul_fp8(b.stream, b.arena,
               {.y = y, .a = a, .b = w, .bias = bias, .residual = adds ? y : Tensor{}});
    expect_close(y, expected, tolerance(y_type), str("y of ", R, " x ", C, " x ", K));
  });
}

TEST(MatmulFp8Contract, what_has_no_product_is_refused_by_name) {
  Bench b;
  const auto make = [&](DType type, Scaling scaling, const Shape& shape) {
    return random_fp8(b, type, scaling, shape);
  };
  const auto e4m3 = DType::fp8_e4m3, e5m2 = DType::fp8_e5m2;
  const auto y = b.poisoned({32, 128}, DType::bf16);
  const auto refused = [&](const std::string& why, const MatmulFp8& args) {
    try {
      matmul_fp8(b.stream, b.arena, args);
      FAIL() << "accepted, expected: " << why;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
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
