#include "kernels/quantize.h"

#include "kernels/quotient.h"
#include "tests/cuda/twins.h"
#include "tests/kernels/fp8.h"

namespace lockstep::testing::quantize_test {

struct QuantizeCuda : ::testing::TestWithParam<Fp8Case> {};
INSTANTIATE_TEST_SUITE_P(cases, QuantizeCuda, kFp8Cases, fp8_case_name);

struct TwinFp8 {
  Twin q, scales;
  Fp8Matrix on(const Side& side) const {
    return {side(q), side(scales), QuantizeCuda::GetParam().scaling};
  }
};

TEST_P(QuantizeCuda, has_the_bits_of_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto most = CudaTest::most(20, 200);
    const auto R = 16 * draw.between(1, most), C = 16 * draw.between(1, most);
    SCOPED_TRACE(str(R, " x ", C));
    const auto x = t.random({R, C}, DType::bf16);
    if (draw.coin()) {  // every exponent, NaNs and infinities too; but no signalling NaN, of which
                        // the fmaxf of a CPU makes a NaN, that of a GPU not
      for (std::int64_t i = 0; i < R * C; ++i) {
        const auto bits =
            static_cast<std::uint16_t>(philox(draw.seed(), 7, static_cast<std::uint64_t>(i))[0]);
        const bool nan = (bits & 0x7fffu) > 0x7f80u;
        x.host.as<BFloat16>()[i] = {static_cast<std::uint16_t>(nan ? bits | 0x40u : bits)};
      }
    } else {
      for (std::int64_t i = 0; i < R * C; ++i)  // magnitudes differ
        Bench::set(x.host, i,
                   get(x.host, i) * std::pow(10, static_cast<double>(i / 128 % 5 + i / C % 3)));
    }
    t.upload(x.device, x.host);
    const auto absmax = t.random({1}, DType::fp32);
    const double largest[] = {0, 3, 448, 1e-25, 4e-38, std::numeric_limits<double>::infinity()};
    Bench::set(absmax.host, 0, largest[draw.between(0, 5)]);
    t.upload(absmax.device, absmax.host);

    const auto make = [&](const Shape& shape) {
      return TwinFp8{t.poisoned(shape, GetParam().type),
                     t.poisoned(scales_shape(GetParam().scaling, shape), DType::fp32)};
    };
    const TwinFp8 q = make({R, C}), turned = make({C, R});
    const auto wanted = draw.between(0, 2);  // both, or one
    t.run([&](const Side& on) {
      quantize(on.stream, wanted == 2 ? Fp8Matrix{} : q.on(on),
               wanted == 1 ? Fp8Matrix{} : turned.on(on), on(x),
               GetParam().scaling == Scaling::tensor ? on(absmax) : Tensor{});
    });
    for (const TwinFp8* m : {&q, &turned}) {
      t.expect_equal(m->scales, m == &q ? "scales" : "scales of the transpose");
      t.expect_equal(m->q, m == &q ? "q" : "transpose");
    }
  });
}

// The midpoints between two codes are n / 16 times a power of two: beside them a quotient that is
// not rounded as a division would show. `step`: which of the 2^23 mantissas of scales are tried.
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
TEST(Quotient, is_rounded_as_a_division_beside_the_midpoints_between_codes) {
  check_quotients(4099);
}
TEST(Quotient, full_is_rounded_as_a_division_beside_the_midpoints_for_every_scale) {
  check_quotients(1);
}

}  // namespace lockstep::testing::quantize_test
