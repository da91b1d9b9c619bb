#include "kernels/gelu.h"
#include "kernels/swiglu.h"
#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference.h"

namespace lockstep::testing::activation_cases {

const std::vector<Sizes> kGelu{{1, 1}, {3, 5}, {16, 16}, {21, 33}, {130, 257}};
Sizes draw_gelu(Draw& d) {
  if (is_on_gpu()) return {1, d.size(most({.simulated = 5000, .real = 5000000}))};
  return {d.size(300), d.size(900)};
}

const bool kGeluForward = register_for_types(
    {.name = "GeluForward", .fixed = kGelu, .draw_sizes = draw_gelu, .make = [](Operator& o) {
       const Shape shape{o.size[0], o.size[1]};
       const auto x = o.in(shape, 6), y = o.out("y", shape, {.drawn_scale = 1});
       const auto absmax = o.absmax_of(y);
       o.may_be(y, {x});
       o.call = [=](const On& on) { gelu_forward(on.stream, on(y), on(x), on(absmax)); };
       o.expect_on_cpu = [=](const Results& r) {
         auto expected = r[x];
         for (auto& v : expected)
           v = reference::gelu_value(v);
         r.close(y, expected);
       };
     }});

const bool kGeluBackward = register_for_types(
    {.name = "GeluBackward", .fixed = kGelu, .draw_sizes = draw_gelu, .make = [](Operator& o) {
       const Shape shape{o.size[0], o.size[1]};
       const auto x = o.in(shape, 6), dy = o.in(shape), dx = o.out("dx", shape, {.drawn_scale = 1});
       const auto absmax = o.absmax_of(dx);
       o.may_be(dx, {dy});
       o.call = [=](const On& on) { gelu_backward(on.stream, on(dx), on(dy), on(x), on(absmax)); };
       o.expect_on_cpu = [=](const Results& r) {
         auto expected = r[dy];
         const auto at = r[x];
         for (std::size_t i = 0; i < expected.size(); ++i)
           expected[i] *= reference::gelu_slope_value(at[i]);
         r.close(dx, expected);
       };
     }});

const std::vector<Sizes> kSwiGlu{{1, 1}, {3, 16}, {7, 33}, {130, 257}};  // [N, F]
Sizes draw_swiglu(Draw& d) {
  return {d.size(most({.cpu = 300, .simulated = 12, .real = 5000})), draw_width(d, 900)};
}

const bool kSwiGluForward = register_for_types(
    {.name = "SwiGluForward", .fixed = kSwiGlu, .draw_sizes = draw_swiglu, .make = [](Operator& o) {
       const auto N = o.size[0], F = o.size[1];
       const auto gate_up = o.in({N, 2 * F}, is_on_gpu() ? 6 : 4);
       const auto hidden = o.out("hidden", {N, F}, {.drawn_scale = 1});
       const auto absmax = o.absmax_of(hidden);
       o.call = [=](const On& on) {
         swiglu_forward(on.stream, on(hidden), on(gate_up), on(absmax));
       };
       o.expect_on_cpu = [=](const Results& r) {
         r.close(hidden, reference::swiglu(r[gate_up], static_cast<std::size_t>(F)));
       };
     }});

const bool kSwiGluBackward = register_for_types(
    {.name = "SwiGluBackward",
     .fixed = kSwiGlu,
     .draw_sizes = draw_swiglu,
     .make = [](Operator& o) {
       const auto N = o.size[0], F = o.size[1];
       const auto gate_up = o.in({N, 2 * F}, is_on_gpu() ? 6 : 4), dhidden = o.in({N, F});
       const auto dgate_up = o.out("dgate_up", {N, 2 * F}, {.drawn_scale = 1});
       const auto absmax = o.absmax_of(dgate_up);
       o.may_be(dgate_up, {gate_up});
       o.call = [=](const On& on) {
         swiglu_backward(on.stream, on(dgate_up), on(dhidden), on(gate_up), on(absmax));
       };
       o.expect_on_cpu = [=](const Results& r) {
         r.close(dgate_up,
                 reference::swiglu_gradient(r[dhidden], r[gate_up], static_cast<std::size_t>(F)));
       };
     }});

}  // namespace lockstep::testing::activation_cases
