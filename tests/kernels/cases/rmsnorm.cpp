#include "kernels/rmsnorm.h"

#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference.h"

namespace lockstep::testing::rmsnorm_cases {

const bool kForward = register_for_types(
    {.name = "RmsNormForward",
     .fixed = {{1, 1}, {3, 16}, {7, 33}, {9, 35}, {64, 768}},
     .draw_sizes = [](Draw& d) -> Sizes {
       return {d.size(most({.cpu = 400, .simulated = 20, .real = 5000})), draw_width(d, 900)};
     },
     .make =
         [](Operator& o) {
           const auto N = o.size[0], D = o.size[1];
           const bool adds = o.coin();
           const float epsilon = o.coin() ? 1e-3f : 1e-5f;
           const auto x = o.in({N, D}), weight = o.in({D});
           const auto residual = adds ? o.in({N, D}) : Operand{};
           const auto sum =
               adds ? o.out("sum", {N, D}, {.drawn_scale = 1, .same_bits = true}) : Operand{};
           const auto y = o.out("y", {N, D}, {.drawn_scale = 1}),
                      rstd = o.out("rstd", {N}, DType::fp32);
           const auto absmax = o.absmax_of(y);
           if (adds) o.may_be(sum, {x, residual});
           o.call = [=](const On& on) {
             rmsnorm_forward(on.stream, {on(y), on(rstd), on(sum), on(x), on(residual), on(weight),
                                         epsilon, on(absmax)});
           };
           o.expect_on_cpu = [=](const Results& r) {
             if (adds) r.close(sum, reference::add(r[x], r[residual]));
             const auto e =
                 reference::rmsnorm(adds ? r.after(sum) : r[x], r[weight], double{epsilon});
             r.close(y, e.y);
             r.close(rstd, e.rstd);
           };
         }});

// A row of one element near 0 has a large rstd and, by algebra, no gradient. On a GPU also rows
// with 8 packs per thread: packs of full size, and of one element.
const bool kBackward = register_for_types(
    {.name = "RmsNormBackward",
     .fixed = {{1, 1}, {3, 16}, {70, 33}, {300, 50}, {64, 768}},
     .on_gpu = {{3, 8 * 1030}, {3, 1101}},
     .draw_sizes = [](Draw& d) -> Sizes {
       return {d.size(most({.cpu = 400, .simulated = 40, .real = 5000})), draw_width(d, 900)};
     },
     .make =
         [](Operator& o) {
           const auto N = o.size[0], D = o.size[1];
           const auto dy = o.in({N, D}), s = o.in({N, D}), weight = o.in({D});
           const auto rstds = reference::rmsnorm(o[s], o[weight], 1e-5).rstd;
           const auto rstd = is_on_gpu() ? o.in({N}, DType::fp32) : o.values({N}, rstds);
           const auto dx =
               o.adds("dx", {N, D}, o.dtype, {.drawn_scale = highest(rstds), .gpu_scale = 1});
           const auto dweight =
               o.adds("dweight", {D}, DType::fp32, {.drawn_scale = root(N), .gpu_scale = root(N)});
           const auto absmax = o.absmax_of(dx);
           o.takes_scratch = true;
           o.call = [=](const On& on) {
             rmsnorm_backward(
                 on.stream, on.scratch,
                 {on(dx), on(dweight), on(dy), on(s), on(rstd), on(weight), on(absmax)});
           };
           o.expect_on_cpu = [=](const Results& r) {
             const auto g = reference::rmsnorm_gradient(r[dy], r[s], r[weight], 1e-5);
             r.close(dx, g.ds);
             r.close(dweight, g.dweight);
           };
         }});

}  // namespace lockstep::testing::rmsnorm_cases
