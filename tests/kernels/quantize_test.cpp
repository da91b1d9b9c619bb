#include "kernels/quantize.h"

#include <bit>

#include "kernels/quotient.h"
#include "tests/kernels/fp8.h"
#include "tests/kernels/operator_case.h"

namespace lockstep::testing::quantize_test {

class Quantize : public ::testing::TestWithParam<Fp8Case> {
 protected:
  DType type() const { return GetParam().type; }
  Scaling scaling() const { return GetParam().scaling; }
  Fp8Matrix matrix(Bench& b, const Shape& shape) const {
    return poisoned_fp8(b, type(), scaling(), shape);
  }
};

// Rounding costs half a unit in the last place of a number, unless the number is tiny compared with
// the largest one of the same scale.
TEST_P(Quantize, a_round_trip_keeps_the_relative_precision_of_the_format) {
  Bench b;
  const auto x = b.random({128, 256}, DType::bf16), absmax = b.random({1}, DType::fp32);
  Bench::set(absmax, 0, 1);
  const auto q = matrix(b, x.shape);
  quantize(b.stream, q, {}, x, scaling() == Scaling::tensor ? absmax : Tensor{});
  const double relative = type() == DType::fp8_e4m3 ? 1.0 / 16 : 1.0 / 8;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    if (std::abs(get(x, i)) < 0.04) continue;  // may be below the normal numbers
    EXPECT_LE(std::abs(value_fp8(q, i / 256, i % 256) - get(x, i)),
              relative * std::abs(get(x, i)) * (1 + 1e-6));
  }
}

TEST(QuantizeContract, wrong_types_and_shapes_are_refused_by_name) {
  Bench b;
  const auto x = b.random({32, 48}, DType::bf16), absmax = b.random({1}, DType::fp32);
  const auto make = [&](Scaling scaling, const Shape& shape) {
    return poisoned_fp8(b, DType::fp8_e4m3, scaling, shape);
  };
  const auto q = make(Scaling::tensor, {32, 48}), t = make(Scaling::tensor, {48, 32});
  const auto refused = [&](const char* why, const Fp8Matrix& m, const Fp8Matrix& turned,
                           ConstTensor of, ConstTensor most) {
    expect_refused(why, [&] { quantize(b.stream, m, turned, of, most); });
  };
  quantize(b.stream, q, t, x, absmax);
  refused("nothing to write", {}, {}, x, absmax);
  refused("x is fp32, expected bf16", q, t, b.random({32, 48}, DType::fp32), absmax);
  refused("x is [30, 48], expected multiples of 16", q, t, x.rows(0, 30), absmax);
  refused("transposed is [32, 48], expected [48, 32]", q, q, x, absmax);
  refused("absmax comes with", q, t, x, {});
  refused("absmax comes with", make(Scaling::blocks, {32, 48}), {}, x, absmax);
  refused("share their scales differently", q, make(Scaling::rows, {48, 32}), x, absmax);
  auto wrong = make(Scaling::blocks, {32, 48});
  wrong.scales = wrong.scales.view({4, 1});
  refused("scales is [4, 1], expected [1, 4]", wrong, {}, x, {});
  wrong = q;
  wrong.q = b.poisoned({32, 48}, DType::bf16);
  refused("matrix is bf16, expected fp8_e4m3 or fp8_e5m2", wrong, {}, x, absmax);
}

// The midpoints between two fp8 values are n / 16 times a power of two. Near them, a quotient that
// is not rounded as a division gives another value. Tries every `step`-th of the 2^23 mantissas of
// scales.
void check_quotients(std::uint32_t step) {
  for (std::uint32_t mantissa = 0; mantissa < 1u << 23; mantissa += step)
    for (const float smallest : {1.0f, 0x1p-126f}) {
      const float scale = std::bit_cast<float>(0x3f800000u | mantissa) * smallest;
      const Quotient quotient(scale);
      for (int n = 16; n < 32; ++n) {
        const auto middle = std::bit_cast<std::uint32_t>(static_cast<float>(n) / 16 * scale);
        for (std::uint32_t bits = middle - 4; bits <= middle + 4; ++bits) {
          const float x = std::bit_cast<float>(bits);
          ASSERT_EQ(quotient.of(x), x / scale) << x << " / " << scale;
        }
      }
    }
}
TEST(Quotient, is_rounded_as_a_division_near_the_midpoints_of_fp8_values) {
  check_quotients(4099);
}
TEST(Quotient, full_is_rounded_as_a_division_near_the_midpoints_for_every_scale) {
  check_quotients(1);
}

INSTANTIATE_TEST_SUITE_P(cases, Quantize, kFp8Cases,
                         [](const auto& p) { return fp8_case_name(p.param); });

}  // namespace lockstep::testing::quantize_test
