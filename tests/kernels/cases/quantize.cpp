#include "kernels/quantize.h"

#include "tests/kernels/fp8.h"
#include "tests/kernels/operator_case.h"

namespace lockstep::testing::quantize_cases {

// Compares every fp8 value and scale of m with the scalar conversion of value(r, c).
template <class Value>
void check_codes(const ConstFp8Matrix& m, float absmax, Value&& value) {
  const auto type = m.q.dtype;
  const auto R = m.q.shape[0], C = m.q.shape[1];
  std::vector<float> top(static_cast<std::size_t>(m.scales.elements()), -1);
  const auto scale_at = [&](std::int64_t r, std::int64_t c) {
    return static_cast<std::size_t>(scale_index(m.scaling, m.q.shape, r, c));
  };
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t c = 0; c < C; ++c) {
      float& at = top[scale_at(r, c)];
      const float x = std::abs(value(r, c));
      at = std::max(at, std::isnan(x) ? 0 : x);
    }
  if (m.scaling == Scaling::tensor) top[0] = absmax;
  for (std::size_t i = 0; i < top.size(); ++i) {
    if (top[i] < 0) {
      ASSERT_TRUE(std::isnan(m.scales.as<float>()[i])) << i << " belongs to nothing";
      continue;
    }
    top[i] =
        top[i] == 0 ? 1 : std::max(top[i] / largest_fp8(type), std::numeric_limits<float>::min());
    ASSERT_EQ(m.scales.as<float>()[i], top[i]) << i;
  }
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t c = 0; c < C; ++c) {
      const float x = value(r, c), scale = top[scale_at(r, c)];
      ASSERT_EQ(std::to_integer<int>(m.q.data[r * C + c]), encode_fp8(type, x / scale))
          << x << " / " << scale << " at " << r << ", " << c;
    }
}

// Magnitudes differ between runs of 128 elements and between rows. As an option on a GPU, all
// exponents, NaNs and infinities occur. Signalling NaNs do not: fmaxf of a CPU makes a NaN of them,
// fmaxf of a GPU does not.
Tensor draw_matrix(Operator& o, std::int64_t R, std::int64_t C) {
  const auto x = o.random({R, C}, DType::bf16);
  const bool any = is_on_gpu() && o.coin();
  for (std::int64_t i = 0; i < R * C; ++i)
    if (any) {
      const auto bits =
          static_cast<std::uint16_t>(philox(o.draw.seed(), 7, static_cast<std::uint64_t>(i))[0]);
      const bool nan = (bits & 0x7fffu) > 0x7f80u;
      x.as<BFloat16>()[i] = {static_cast<std::uint16_t>(nan ? bits | 0x40u : bits)};
    } else {
      Bench::set(x, i, get(x, i) * std::pow(10, static_cast<double>(i / 128 % 5 + i / C % 3)));
    }
  if (!any) {
    Bench::set(x, R * C / 2, std::nan(""));
    Bench::set(x, R * C / 3, 0);
  }
  return x;
}

void make(Operator& o, const Fp8Case& c) {
  const auto R = o.size[0], C = o.size[1];
  const bool whole = c.scaling == Scaling::tensor;
  const auto x = o.input(draw_matrix(o, R, C));
  const double tops[] = {777, 0,     3e-38, 3,
                         448, 1e-25, 4e-38, std::numeric_limits<double>::infinity()};
  const auto absmax = whole ? o.values({1}, {tops[o.size[2]]}) : Operand{};
  struct Matrix {
    Operand q, scales;
  };
  const auto make_out = [&](const Shape& shape) {
    return Matrix{o.out("codes", shape, c.type, kExact),
                  o.out("scales", scales_shape(c.scaling, shape), DType::fp32, kExact)};
  };
  // Both matrices are written, or one.
  const bool straight = !o.coin(), transposed = !straight || !o.coin();
  const auto q = make_out({R, C}), turned = make_out({C, R});
  o.call = [=](const On& on) {
    const auto matrix = [&](const Matrix& m) {
      return Fp8Matrix{on(m.q), on(m.scales), c.scaling};
    };
    quantize(on.stream, straight ? matrix(q) : Fp8Matrix{},
             transposed ? matrix(turned) : Fp8Matrix{}, on(x), on(absmax));
  };
  o.expect_on_cpu = [=](const Results& r) {
    const auto most32 = whole ? static_cast<float>(r[absmax][0]) : 0;
    const auto values = r[x];
    const auto value = [&](std::int64_t row, std::int64_t column) {
      return static_cast<float>(values[static_cast<std::size_t>(row * C + column)]);
    };
    const auto matrix = [&](const Matrix& m) {
      return ConstFp8Matrix{r.tensor(m.q), r.tensor(m.scales), c.scaling};
    };
    for (const auto& m : {q, turned}) {
      r.checked(m.q);
      r.checked(m.scales);
    }
    if (straight) check_codes(matrix(q), most32, value);
    if (transposed)
      check_codes(matrix(turned), most32,
                  [&](std::int64_t column, std::int64_t row) { return value(row, column); });
  };
}

const bool kRegistered = [] {
  for (const auto type : {DType::fp8_e4m3, DType::fp8_e5m2})
    for (const auto scaling : {Scaling::tensor, Scaling::rows, Scaling::blocks}) {
      const Fp8Case c{type, scaling};
      OperatorCase quantize{.name = "Quantize",
                            .draw_sizes = [](Draw& d) -> Sizes {
                              return {
                                  16 * d.between(1, most({.cpu = 9, .simulated = 20, .real = 200})),
                                  16 * d.between(1, most({.cpu = 9, .simulated = 20, .real = 200})),
                                  is_on_gpu() ? d.between(1, 7) : d.between(0, 2)};
                            },
                            .make = [c](Operator& o) { make(o, c); },
                            .suffix = str("_", fp8_case_name(c))};
      for (const auto& [R, C] : {std::pair{16, 16}, {128, 128}, {144, 272}, {32, 656}, {400, 16}})
        for (const int top : {0, 1, 2})
          if (top == 0 || scaling == Scaling::tensor) quantize.fixed.push_back({R, C, top});
      register_operator(quantize);
    }
  return true;
}();

}  // namespace lockstep::testing::quantize_cases
