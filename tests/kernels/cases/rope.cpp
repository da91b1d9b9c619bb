#include "kernels/rope.h"

#include "tests/kernels/heads.h"
#include "tests/kernels/operator_case.h"

namespace lockstep::testing::rope_cases {

std::optional<RopeScaling> draw_scaling(Operator& o) {
  return o.coin() ? std::optional(kShortScaling) : std::nullopt;
}

// Angles of up to P are rounded to fp32, by about 2^-24 of their size, and so are frequencies.
const bool kTable = register_operator(
    {.name = "RopeTable",
     .draw_sizes = [](Draw& d) -> Sizes {
       return {d.size(most({.cpu = 500, .simulated = 40, .real = 8192})),
               2 * d.size(most({.cpu = 128, .simulated = 70, .real = 70})),
               is_on_gpu() ? 10000 : d.between(100, 1000000)};
     },
     .make =
         [](Operator& o) {
           const auto P = o.size[0], K = o.size[1];
           const auto theta = static_cast<float>(o.size[2]);
           const auto scaling = draw_scaling(o);
           const auto table = o.out("table", {P, K}, {.relative = 3e-7 * static_cast<double>(P)});
           o.call = [=](const On& on) { rope_table(on.stream, on(table), theta, scaling); };
           o.expect_on_cpu = [=](const Results& r) {
             r.close(table, reference::rope_table(P, K, double{theta}, scaling));
           };
         }});

const std::vector<Sizes> kFixed{{1, 1, 1, 2}, {3, 4, 2, 16}, {70, 3, 3, 34}, {40, 6, 1, 128}};
Sizes draw_sizes(Draw& d) {
  const auto G = d.between(1, most({.cpu = 4, .simulated = 3, .real = 3}));
  const auto K = is_on_gpu() ? d.coin() ? 2 * d.size(20) : 16 * d.between(1, 9) : 2 * d.size(128);
  return {d.size(most({.cpu = 200, .simulated = 20, .real = 5000})),
          G * d.between(1, most({.cpu = 5, .simulated = 4, .real = 4})), G, K};
}

template <bool kBackward>
void make(Operator& o) {
  const Heads s{o.size};
  const Turns turns(o, s, draw_scaling(o));
  const auto qkv = o.changes("qkv", o.random(s.qkv(), o.dtype));
  const auto absmax = kBackward ? o.absmax_of(qkv) : Operand{};
  const auto H = static_cast<int>(s.H), G = static_cast<int>(s.G);
  o.call = [=](const On& on) {
    if (kBackward)
      rope_backward(on.stream, on(qkv), on(turns.table), on(turns.positions), H, G, on(absmax));
    else
      rope_forward(on.stream, on(qkv), on(turns.table), on(turns.positions), H, G);
  };
  o.expect_on_cpu = [=](const Results& r) {
    r.close(qkv, kBackward ? turns.backward(r[qkv], s) : turns.forward(r[qkv], s));
  };
}
const bool kForward = register_for_types(
    {.name = "RopeForward", .fixed = kFixed, .draw_sizes = draw_sizes, .make = make<false>});
const bool kBackward = register_for_types(
    {.name = "RopeBackward", .fixed = kFixed, .draw_sizes = draw_sizes, .make = make<true>});

}  // namespace lockstep::testing::rope_cases
