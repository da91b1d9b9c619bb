#include "kernels/layernorm.h"

#include <limits>

#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference.h"

namespace lockstep::testing::layernorm_cases {

const std::vector<Sizes> kFixed{{1, 2}, {3, 16}, {7, 33}, {9, 35}, {70, 50}, {300, 20}, {64, 768}};

// The rounding of s - mean is divided by the deviation, and that of rstd by its square. With few
// columns the deviation may be small. On a GPU, the variance of a row of one element is only
// rounding.
const bool kForward = register_for_types(
    {.name = "LayerNormForward",
     .fixed = kFixed,
     .draw_sizes = [](Draw& d) -> Sizes {
       return {d.size(most({.cpu = 400, .simulated = 20, .real = 5000})), draw_width(d, 900)};
     },
     .make =
         [](Operator& o) {
           const auto N = o.size[0], D = o.size[1];
           const bool adds = o.coin();
           const float epsilon = o.coin() ? 1e-3f : 1e-5f;
           const auto x = o.in({N, D}), weight = o.in({D}), bias = o.in({D});
           const auto residual = adds ? o.in({N, D}) : Operand{};
           const auto sum =
               adds ? o.out("sum", {N, D}, {.drawn_scale = 1, .same_bits = true}) : Operand{};
           const auto s = adds ? reference::add(o[x], o[residual]) : o[x];
           const auto rstd =
               highest(reference::layernorm(s, o[weight], o[bias], double{epsilon}).stats);
           const auto y = o.out("y", {N, D}, {.drawn_scale = rstd});
           const auto any = std::numeric_limits<double>::infinity();
           const auto stats = o.out("stats", {N, 2}, DType::fp32,
                                    {.drawn_scale = rstd * rstd, .gpu_scale = D > 1 ? 0 : any});
           const auto absmax = o.absmax_of(y);
           if (adds) o.may_be(sum, {x, residual});
           o.call = [=](const On& on) {
             layernorm_forward(on.stream, {on(y), on(stats), on(sum), on(x), on(residual),
                                           on(weight), on(bias), epsilon, on(absmax)});
           };
           o.expect_on_cpu = [=](const Results& r) {
             if (adds) r.close(sum, reference::add(r[x], r[residual]));
             const auto e = reference::layernorm(adds ? r.after(sum) : r[x], r[weight], r[bias],
                                                 double{epsilon});
             r.close(y, e.y);
             r.close(stats, e.stats);
           };
         }});

// On a GPU also rows with 8 packs per thread: packs of full size, and of one element.
const bool kBackward = register_for_types(
    {.name = "LayerNormBackward",
     .fixed = kFixed,
     .on_gpu = {{3, 8 * 1030}, {3, 1101}},
     .draw_sizes = [](Draw& d) -> Sizes {
       return {d.size(most({.cpu = 400, .simulated = 40, .real = 5000})), draw_width(d, 900)};
     },
     .make =
         [](Operator& o) {
           const auto N = o.size[0], D = o.size[1];
           const auto dy = o.in({N, D}), s = o.in({N, D}), weight = o.in({D});
           const auto all =
               reference::layernorm(o[s], o[weight], Doubles(static_cast<std::size_t>(D)), 1e-5)
                   .stats;
           const auto stats = is_on_gpu() ? o.in({N, 2}, DType::fp32) : o.values({N, 2}, all);
           const double rstd = highest(all), rows = root(N);
           const auto dx =
               o.adds("dx", {N, D}, o.dtype, {.drawn_scale = rstd * rstd, .gpu_scale = 1});
           const auto dweight =
               o.adds("dweight", {D}, DType::fp32, {.drawn_scale = rstd + rows, .gpu_scale = rows});
           const auto dbias =
               o.adds("dbias", {D}, DType::fp32, {.drawn_scale = rows, .gpu_scale = rows});
           const auto absmax = o.absmax_of(dx);
           o.takes_scratch = true;
           o.call = [=](const On& on) {
             layernorm_backward(on.stream, on.scratch,
                                {on(dx), on(dweight), on(dbias), on(dy), on(s), on(stats),
                                 on(weight), on(absmax)});
           };
           o.expect_on_cpu = [=](const Results& r) {
             const auto g = reference::layernorm_gradient(r[dy], r[s], r[weight], 1e-5);
             r.close(dx, g.ds);
             r.close(dweight, g.dweight);
             r.close(dbias, g.dbias);
           };
         }});

}  // namespace lockstep::testing::layernorm_cases
