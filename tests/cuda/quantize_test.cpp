#include "kernels/quantize.h"

#include "core/integer.h"
#include "kernels/quotient.h"
#include "tests/cuda/twins.h"

namespace lockstep::testing {
namespace {

struct Types {
  DType x, q;
};
struct QuantizeCuda : ::testing::TestWithParam<Types> {};
INSTANTIATE_TEST_SUITE_P(types, QuantizeCuda,
                         ::testing::Values(Types{DType::fp32, DType::fp8_e4m3},
                                           Types{DType::bf16, DType::fp8_e4m3},
                                           Types{DType::fp32, DType::fp8_e5m2},
                                           Types{DType::bf16, DType::fp8_e5m2}),
                         [](const auto& p) { return str(name(p.param.x), "_", name(p.param.q)); });

// Numbers of every exponent; NaNs, infinities, what saturates.
void fill_with_patterns(Twins& t, const Twin& x, std::uint64_t seed) {
  for (std::int64_t i = 0; i < x.host.elements(); ++i) {
    const auto word = philox(seed, 7, static_cast<std::uint64_t>(i))[0];
    if (x.host.dtype == DType::fp32)
      x.host.as<float>()[i] = std::bit_cast<float>(word);
    else
      x.host.as<BFloat16>()[i] = {static_cast<std::uint16_t>(word)};
  }
  t.upload(x.device, x.host);
}

std::int64_t draw_elements(Draw& draw) {
  const auto n = draw.between(0, 9) == 0 ? 0 : draw.size(CudaTest::most(20000, 1000000));
  return draw.coin() ? n : n / 8 * 8;
}

TEST_P(QuantizeCuda, quantize_has_the_bits_of_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto n = draw_elements(draw);
    const bool patterns = draw.coin();
    const auto x = t.random({n}, GetParam().x, 3);
    if (patterns) fill_with_patterns(t, x, draw.seed());
    const auto q = t.poisoned({n}, GetParam().q), scale = t.poisoned({1}, DType::fp32);
    const auto absmax = t.random({1}, DType::fp32);
    const double largest[] = {0, 3, 448, 1e-25, 1e30, std::numeric_limits<double>::infinity()};
    Bench::set(absmax.host, 0, largest[draw.between(0, 5)]);
    t.upload(absmax.device, absmax.host);
    t.run([&](const Side& on) { quantize(on.stream, on(q), on(scale), on(x), on(absmax)); });
    t.expect_equal(scale, "scale");
    t.expect_equal(q, str("q of ", n, " with absmax ", get(absmax.host, 0)));
  });
}

TEST_P(QuantizeCuda, a_tiny_absmax_gives_the_bits_of_the_cpu_kernel) {
  Twins t(1);
  const auto x = t.random({64}, GetParam().x), q = t.poisoned({64}, GetParam().q);
  const auto scale = t.poisoned({1}, DType::fp32), absmax = t.random({1}, DType::fp32);
  for (std::int64_t i = 0; i < 64; ++i)
    Bench::set(x.host, i,
               (i % 3 == 0   ? 0
                : i % 3 == 1 ? 1.3e-38
                             : -1.3e-38) *
                   (1 + 0.03 * static_cast<double>(i)));
  t.upload(x.device, x.host);
  Bench::set(absmax.host, 0, 4e-38);
  t.upload(absmax.device, absmax.host);
  t.run([&](const Side& on) { quantize(on.stream, on(q), on(scale), on(x), on(absmax)); });
  t.expect_equal(scale, "scale");
  t.expect_equal(q, "q");
}

TEST_P(QuantizeCuda, blocks_have_the_bits_of_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto R = draw.size(CudaTest::most(300, 3000));
    const auto C = draw.coin() ? draw.size(300) : 8 * draw.between(1, 40);
    const Shape shape{R, C}, blocks{divide_up(R, 128), divide_up(C, 128)};
    SCOPED_TRACE(str(shape));
    const auto x = t.random(shape, GetParam().x);
    for (std::int64_t i = 0; i < R * C; ++i) {  // magnitudes differ from block to block
      const auto block = i / C / 128 + i % C / 128;
      Bench::set(x.host, i, get(x.host, i) * std::pow(10, static_cast<double>(block)));
    }
    if (draw.coin()) Bench::set(x.host, draw.between(0, R * C - 1), std::nan(""));
    t.upload(x.device, x.host);
    const auto q = t.poisoned(shape, GetParam().q), scales = t.poisoned(blocks, DType::fp32);
    const auto y = t.poisoned(shape, GetParam().x);
    t.run([&](const Side& on) {
      quantize_blocks(on.stream, on(q), on(scales), on(x));
      dequantize(on.stream, on(y), on(q), on(scales));
    });
    t.expect_equal(scales, "scales");
    t.expect_equal(q, "q");
    t.expect_equal(y, "y");
  });
}

TEST_P(QuantizeCuda, dequantize_has_the_bits_of_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto n = draw_elements(draw);
    const auto q = t.poisoned({n}, GetParam().q), y = t.poisoned({n}, GetParam().x);
    for (std::int64_t i = 0; i < n; ++i)
      q.host.data[i] = static_cast<std::byte>(draw.between(0, 255));
    t.upload(q.device, q.host);
    const auto scale = t.random({1}, DType::fp32);
    t.run([&](const Side& on) { dequantize(on.stream, on(y), on(q), on(scale)); });
    t.expect_equal(y, "y");
  });
}

TEST_P(QuantizeCuda, a_view_between_packs_has_the_bits_of_the_cpu_kernel) {
  Twins t(1);
  const auto x = t.random({100, 3}, GetParam().x), q = t.poisoned({100, 3}, GetParam().q);
  const auto scale = t.poisoned({1}, DType::fp32), absmax = t.random({1}, DType::fp32);
  t.run([&](const Side& on) {
    quantize(on.stream, on(q).rows(1, 96), on(scale), on(x).rows(1, 96), on(absmax));
  });
  t.expect_equal(q, "q");
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

}  // namespace
}  // namespace lockstep::testing
