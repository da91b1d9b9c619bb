#include "kernels/matmul.h"

#include "kernels/matmul_fp8.h"
#include "tests/kernels/fp8.h"
#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference.h"

namespace lockstep::testing::matmul_cases {

// N tokens, I inputs, O outputs. There are shapes with no tokens, single elements, primes, one or
// two rows (decoding), and, for each dimension, a size beyond every block of the packed kernel. The
// last three also have several blocks of depth, packings of rows and panels of columns.
const std::vector<Sizes> kFixed{
    {0, 16, 8},      {1, 1, 1},      {1, 7, 3},        {2, 64, 130},    {5, 131, 17},
    {13, 48, 96},    {16, 259, 101}, {17, 31, 53},     {40, 96, 64},    {97, 101, 89},
    {128, 128, 128}, {61, 700, 45},  {300, 37, 70},    {33, 50, 517},   {20, 1700, 30},
    {30, 20, 1700},  {1700, 20, 30}, {100, 1700, 130}, {70, 130, 1700}, {1700, 100, 130}};
const std::vector<Sizes> kOnGpu{{0, 16, 8}};

// On a CPU, matmuls are small enough for the reference: long in one dimension or medium in two.
template <int kTokensOnGpu>
Sizes draw_sizes(Draw& d) {
  const auto columns = [&] { return d.coin() ? d.size(24) : 8 * d.between(1, 4); };
  if (is_on_gpu())
    return {d.size(most({.simulated = kTokensOnGpu, .real = 600})), columns(), columns()};
  for (;;)
    if (const Sizes s{d.size(2000), d.size(2000), d.size(2000)}; s[0] * s[1] * s[2] <= 1 << 19)
      return s;
}
reference::MatmulSize size_of(const Sizes& s) {
  return {static_cast<std::size_t>(s[0]), static_cast<std::size_t>(s[1]),
          static_cast<std::size_t>(s[2])};
}
void add_rows(Doubles& y, const Doubles& row) {
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] += row[i % row.size()];
}

const bool kForward = register_for_types(
    {.name = "MatmulForward",
     .fixed = kFixed,
     .on_gpu = kOnGpu,
     .draw_sizes = draw_sizes<20>,
     .make = [](Operator& o) {
       const auto s = size_of(o.size);
       const auto N = o.size[0], I = o.size[1], O = o.size[2];
       const bool biased = o.coin(), gelu = o.coin(), adds = o.coin();
       const auto type = o.coin() ? DType::fp32 : o.dtype;
       // Sums are around 1, where GELU is curved.
       const bool small = !is_on_gpu() && (gelu || !o.is_fixed());
       const auto x = o.in({N, I}, small ? 2 / std::sqrt(static_cast<float>(I)) : 1);
       const auto weight = o.in({O, I}), bias = biased ? o.in({O}) : Operand{};
       const auto residual = adds ? o.in({N, O}, type) : Operand{};
       // If y is bf16, so are the roundings before it.
       const Bound bound{.drawn_scale = 1, .gpu_scale = root(I)};
       const auto pre_gelu = gelu ? o.out("pre_gelu", {N, O}, type, bound) : Operand{};
       const auto y = o.out("y", {N, O}, type, bound);
       if (adds && !gelu) o.may_be(y, {residual});
       o.takes_scratch = is_on_gpu() ? N > 0 : N > 16;  // a CPU packs more than a few rows
       o.call = [=](const On& on) {
         matmul_forward(on.stream, on.scratch, on(y), on(x), on(weight),
                        {.bias = on(bias), .pre_gelu = on(pre_gelu), .residual = on(residual)});
       };
       o.expect_on_cpu = [=](const Results& r) {
         auto expected = reference::matmul(r[x], r[weight], s);
         if (biased) add_rows(expected, r[bias]);
         if (gelu) {
           r.close(pre_gelu, expected);
           expected = r.after(pre_gelu);  // as stored: backward recomputes y from it
           for (auto& v : expected)
             v = reference::gelu_value(v);
         }
         if (adds) add_rows(expected, r[residual]);
         r.close(y, expected);
       };
     }});

const bool kInput = register_for_types(
    {.name = "MatmulBackwardInput",
     .fixed = kFixed,
     .on_gpu = kOnGpu,
     .draw_sizes = draw_sizes<40>,
     .make = [](Operator& o) {
       const auto s = size_of(o.size);
       const auto N = o.size[0], I = o.size[1], O = o.size[2];
       const auto dy = o.in({N, O}), weight = o.in({O, I});
       const auto pre_gelu = o.coin() ? o.in({N, I}, 3) : Operand{};
       const auto dx = o.out("dx", {N, I}, {.drawn_scale = root(O), .gpu_scale = root(O)});
       o.takes_scratch = N > 0;
       o.call = [=](const On& on) {
         matmul_backward_input(on.stream, on.scratch, on(dx), on(dy), on(weight), on(pre_gelu));
       };
       o.expect_on_cpu = [=](const Results& r) {
         auto expected = reference::matmul_dx(r[dy], r[weight], s);
         const auto before = r[pre_gelu];
         for (std::size_t i = 0; i < before.size(); ++i)
           expected[i] *= reference::gelu_slope_value(before[i]);
         r.close(dx, expected);
       };
     }});

// With `add`, or without.
template <bool add>
OperatorCase weight_case(const char* name) {
  return {.name = name,
          .fixed = kFixed,
          .on_gpu = kOnGpu,
          .draw_sizes = draw_sizes<40>,
          .make = [](Operator& o) {
            const auto s = size_of(o.size);
            const auto N = o.size[0], I = o.size[1], O = o.size[2];
            const auto dy = o.in({N, O}), x = o.in({N, I});
            const Bound bound{.drawn_scale = root(N), .gpu_scale = root(N)};
            const auto dweight = add ? o.adds("dweight", {O, I}, DType::fp32, bound)
                                     : o.out("dweight", {O, I}, DType::fp32, bound);
            const auto dbias = o.coin() ? o.adds("dbias", {O}, DType::fp32, bound) : Operand{};
            o.takes_scratch = N > 0;
            o.call = [=](const On& on) {
              matmul_backward_weight(on.stream, on.scratch, on(dweight), on(dbias), on(dy), on(x),
                                     add);
            };
            o.expect_on_cpu = [=](const Results& r) {
              r.close(dweight, reference::matmul_dweight(r[dy], r[x], s));
              if (dbias) r.close(dbias, reference::column_sums(r[dy], s.O));
            };
            o.expect_anywhere = [=](const Results& r) {
              if (N == 0 && add)
                expect_bitwise_equal(r.tensor(dweight), r.before(dweight), "of no tokens");
              if (N == 0 && dbias)
                expect_bitwise_equal(r.tensor(dbias), r.before(dbias), "of no tokens");
            };
          }};
}

const bool kWeight = register_for_types(weight_case<true>("MatmulBackwardWeight"));
const bool kWeightSet = register_for_types(weight_case<false>("MatmulBackwardWeightSet"));

// Multiplies a [R, K] and b [C, K] in fp8. The reference is float64 over the values of codes and
// scales. With `small`, the values are whole numbers, and every sum fits in the 13 bits that
// Hopper's tensor cores keep. Other sums are cut to 13 bits before each promotion to fp32; with
// `fast`, along the whole of K.
bool register_fp8(const char* suffix, Scaling a_scaling, Scaling b_scaling) {
  const bool whole = a_scaling == Scaling::tensor;
  const auto unit = whole ? 16 : 128;
  return register_operator(
      {.name = "MatmulFp8",
       .draw_sizes = [=](Draw& d) -> Sizes {
         return {16 * d.between(1, most({.cpu = 6, .simulated = 2, .real = 16})),
                 unit * d.between(1, most({.cpu = 2, .simulated = 2, .real = 16})),
                 unit * d.between(1, most({.cpu = 3, .simulated = 2, .real = 16}))};
       },
       .make =
           [=](Operator& o) {
             const auto R = o.size[0], C = o.size[1], K = o.size[2];
             const auto types = o.draw.between(0, 2);  // at most one E5M2
             const bool small = is_on_gpu() && o.coin(), fast = is_on_gpu() && whole && o.coin();
             struct Matrix {
               Operand q, scales;
               Scaling scaling;
               Fp8Matrix on(const On& side) const { return {side(q), side(scales), scaling}; }
             };
             const auto make = [&](DType type, Scaling scaling, const Shape& shape) {
               const auto m = random_fp8(o.b, type, scaling, shape);
               for (std::int64_t i = 0; small && i < m.q.elements(); ++i)
                 m.q.data[i] = static_cast<std::byte>(
                     encode_fp8(type, static_cast<float>(o.draw.between(-2, 2))));
               return Matrix{o.input(m.q), o.input(m.scales), scaling};
             };
             const auto a = make(types == 1 ? DType::fp8_e5m2 : DType::fp8_e4m3, a_scaling, {R, K});
             const auto w = make(types == 2 ? DType::fp8_e5m2 : DType::fp8_e4m3, b_scaling, {C, K});
             const auto type = o.coin() ? DType::bf16 : DType::fp32;
             const float like = small ? 10.0f : 1e5f;  // the size of an element of y
             const auto bias =
                 type == DType::bf16 && o.coin() ? o.in({C}, DType::bf16, like) : Operand{};
             const double cut = small ? 0 : fast ? 8e-3 : 0x1p-12;
             const Bound bound{.gpu_relative = std::max(tolerance(type), cut)};
             const bool adds = o.coin();
             const auto y = adds ? o.changes("y", o.random({R, C}, type, like), bound)
                                 : o.out("y", {R, C}, type, bound);
             o.takes_scratch = true;
             o.call = [=](const On& on) {
               matmul_fp8(on.stream, on.scratch,
                          {.y = on(y),
                           .a = a.on(on),
                           .b = w.on(on),
                           .bias = on(bias),
                           .residual = adds ? on(y) : Tensor{},
                           .fast = fast});
             };
             o.expect_on_cpu = [=](const Results& r) {
               const auto values = [&](const Matrix& m, std::int64_t rows) {
                 const ConstFp8Matrix all{r.before(m.q), r.before(m.scales), m.scaling};
                 Doubles some;
                 for (std::int64_t i = 0; i < rows * K; ++i)
                   some.push_back(value_fp8(all, i / K, i % K));
                 return some;
               };
               auto expected = reference::matmul(values(a, R), values(w, C), size_of({R, K, C}));
               if (bias) add_rows(expected, r[bias]);
               if (adds) add_rows(expected, r[y]);
               r.close(y, expected);
             };
           },
       .suffix = suffix,
       .seeds = static_cast<int>(most({.cpu = 12, .simulated = 8, .real = 8}))});
}
const bool kFp8[] = {register_fp8("_tensor_tensor", Scaling::tensor, Scaling::tensor),
                     register_fp8("_rows_rows", Scaling::rows, Scaling::rows),
                     register_fp8("_rows_blocks", Scaling::rows, Scaling::blocks)};

}  // namespace lockstep::testing::matmul_cases
