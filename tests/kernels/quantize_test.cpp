#include "kernels/quantize.h"

#include "tests/kernels/fp8.h"

namespace lockstep::testing::quantize_test {

class Quantize : public ::testing::TestWithParam<Fp8Case> {
 protected:
  DType type() const { return GetParam().type; }
  Scaling scaling() const { return GetParam().scaling; }
  Fp8Matrix matrix(Bench& b, const Shape& shape) const {
    return poisoned_fp8(b, type(), scaling(), shape);
  }

  // The scale that numbers of at most `most` should have.
  float expected_scale(float most) const {
    if (most == 0) return 1;
    return std::max(most / largest_fp8(type()), std::numeric_limits<float>::min());
  }

  // Every code and scale of q, which stands for value(r, c).
  template <class Value>
  void check(const ConstFp8Matrix& m, float absmax, Value&& value) const {
    const auto R = m.q.shape[0], C = m.q.shape[1];
    std::vector<float> most(static_cast<std::size_t>(m.scales.elements()), -1);
    const auto scale_of = [&](std::int64_t r, std::int64_t c) {
      return static_cast<std::size_t>(scale_index(scaling(), m.q.shape, r, c));
    };
    for (std::int64_t r = 0; r < R; ++r)
      for (std::int64_t c = 0; c < C; ++c) {
        float& at = most[scale_of(r, c)];
        const float x = std::abs(value(r, c));
        at = std::max(at, std::isnan(x) ? 0 : x);
      }
    if (scaling() == Scaling::tensor) most[0] = absmax;
    for (std::size_t i = 0; i < most.size(); ++i)
      if (most[i] >= 0)
        ASSERT_EQ(m.scales.as<float>()[i], expected_scale(most[i])) << i;
      else
        ASSERT_TRUE(std::isnan(m.scales.as<float>()[i])) << i << " belongs to nothing";
    for (std::int64_t r = 0; r < R; ++r)
      for (std::int64_t c = 0; c < C; ++c) {
        const float x = value(r, c), scale = expected_scale(most[scale_of(r, c)]);
        ASSERT_EQ(std::to_integer<int>(m.q.data[r * C + c]), encode_fp8(type(), x / scale))
            << x << " / " << scale << " at " << r << ", " << c;
      }
  }
};

TEST_P(Quantize, gives_the_bits_of_the_scalar_conversion_and_of_its_transpose) {
  for (const Shape shape : {Shape{16, 16}, {128, 128}, {144, 272}, {32, 656}, {400, 16}}) {
    SCOPED_TRACE(str(shape));
    Bench b;
    const auto R = shape[0], C = shape[1];
    const auto x = b.random(shape, DType::bf16);
    for (std::int64_t i = 0; i < R * C; ++i)  // magnitudes differ, from run to run and row to row
      Bench::set(x, i, get(x, i) * std::pow(10, static_cast<double>(i / 128 % 5 + i / C % 3)));
    Bench::set(x, R * C / 2, std::nan(""));
    Bench::set(x, R * C / 3, 0);
    const bool whole = scaling() == Scaling::tensor;
    const auto absmax = whole ? b.random({1}, DType::fp32) : Tensor{};
    for (const double most : {777.0, 0.0, 3e-38}) {
      if (whole) Bench::set(absmax, 0, most);
      const auto value = [&](std::int64_t r, std::int64_t c) {
        return static_cast<float>(get(x, r * C + c));
      };
      const auto turned = [&](std::int64_t c, std::int64_t r) { return value(r, c); };
      const auto most32 = static_cast<float>(most);
      const auto q = matrix(b, {R, C}), t = matrix(b, {C, R});
      quantize(b.stream, q, t, x, absmax);
      check(q, most32, value);
      check(t, most32, turned);
      const auto q_alone = matrix(b, {R, C}), t_alone = matrix(b, {C, R});
      quantize(b.stream, q_alone, {}, x, absmax);
      quantize(b.stream, {}, t_alone, x, absmax);
      check(q_alone, most32, value);
      check(t_alone, most32, turned);
      if (!whole) break;
    }
  }
}

// What rounding costs: half a unit of the last place of each number that is not tiny beside the
// largest of those it shares a scale with.
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
  const auto refused = [&](const std::string& why, const Fp8Matrix& m, const Fp8Matrix& turned,
                           ConstTensor of, ConstTensor most) {
    try {
      quantize(b.stream, m, turned, of, most);
      FAIL() << "accepted, expected: " << why;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
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

INSTANTIATE_TEST_SUITE_P(cases, Quantize, kFp8Cases, fp8_case_name);

}  // namespace lockstep::testing::quantize_test
