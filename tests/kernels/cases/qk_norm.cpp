#include "kernels/qk_norm.h"

#include "tests/kernels/heads.h"

namespace lockstep::testing::qk_norm_cases {

// No shape has K = 1, because its gradient is zero by algebra. Heads with odd K are not rotated.
const std::vector<Sizes> kFixed{{1, 1, 1, 3}, {3, 4, 2, 16},  {70, 3, 3, 33}, {40, 6, 1, 128},
                                {1, 1, 1, 2}, {70, 3, 3, 34}, {100, 4, 2, 40}};
Sizes draw_sizes(Draw& d) {
  const auto G = d.between(1, most({.cpu = 4, .simulated = 3, .real = 3}));
  const auto K = is_on_gpu() && d.coin() ? 16 * d.between(1, 16)
                 : d.coin() ? 2 * d.size(most({.cpu = 100, .simulated = 128, .real = 128}))
                            : d.size(most({.cpu = 200, .simulated = 256, .real = 256}));
  return {d.size(most({.cpu = 100, .simulated = 20, .real = 5000})),
          G * d.between(1, most({.cpu = 5, .simulated = 4, .real = 4})), G, K};
}
Turns draw_turns(Operator& o, const Heads& s) {
  return s.K % 2 == 0 && o.coin() ? Turns(o, s, {}) : Turns();
}

// One pass rounds once: the error of a bf16 element is half a unit in its own last place and the
// error of fp32. With a rounding between norm and RoPE, the error could be half a unit of its
// partner. Values are copied.
const bool kForward = register_for_types(
    {.name = "QkNormForward", .fixed = kFixed, .draw_sizes = draw_sizes, .make = [](Operator& o) {
       const Heads s{o.size};
       const auto turns = draw_turns(o, s);
       const auto qkv = o.in(s.qkv()), q_weight = o.in({s.K}), k_weight = o.in({s.K});
       const auto out = o.out("out", s.qkv()), rstd = o.out("rstd", {s.N, s.H + s.G}, DType::fp32);
       if (!is_on_gpu())
         o.divide(out, {{"q", 0, s.H * s.K, {.drawn_scale = 1}},
                        {"k", s.H * s.K, s.G * s.K, {.drawn_scale = 1}},
                        {"v", (s.H + s.G) * s.K, s.G * s.K, {.relative = 0}}});
       o.may_be(out, {qkv});
       o.call = [=](const On& on) {
         qk_norm_forward(on.stream, {on(out), on(rstd), on(qkv), on(q_weight), on(k_weight),
                                     static_cast<int>(s.H), static_cast<int>(s.G), 1e-5f,
                                     on(turns.table), on(turns.positions)});
       };
       o.expect_on_cpu = [=](const Results& r) {
         const auto e = reference::qk_norm(r[qkv], s, r[q_weight], r[k_weight]);
         const auto expected = turns.forward(e.out, s);
         r.close(out, expected);
         r.checked(rstd);
         const auto rstds = r.after(rstd), got = r.after(out);
         for (std::size_t i = 0; i < rstds.size(); ++i)
           ASSERT_NEAR(rstds[i], e.rstd[i], 4e-6 * e.rstd[i]) << "rstd " << i;
         if (!turns.table || !r.is_fixed) return;
         double top = 0;
         for (const double v : expected)
           top = std::max(top, std::abs(v));
         const double half_unit = r.tensor(out).dtype == DType::bf16 ? 0x1p-8 : 0;
         for (std::size_t i = 0; i < got.size(); ++i)
           ASSERT_LE(std::abs(got[i] - expected[i]),
                     half_unit * std::abs(expected[i]) + tolerance(DType::fp32) * top)
               << "element " << i << " is rounded more than once";
       };
     }});

// Heads of one element have no gradient, by algebra.
const bool kBackward = register_for_types(
    {.name = "QkNormBackward", .fixed = kFixed, .draw_sizes = draw_sizes, .make = [](Operator& o) {
       const Heads s{o.size};
       const auto turns = draw_turns(o, s);
       const auto qkv = o.in(s.qkv()), q_weight = o.in({s.K}), k_weight = o.in({s.K});
       const auto rstds = reference::qk_norm(o[qkv], s, o[q_weight], o[k_weight]).rstd;
       const auto rstd = o.values({s.N, s.H + s.G}, rstds);
       const auto dqkv = o.changes("dqkv", o.random(s.qkv(), o.dtype));
       const Bound part{.drawn_scale = highest(rstds)};
       if (!is_on_gpu())
         o.divide(dqkv, {{"dq", 0, s.H * s.K, part},
                         {"dk", s.H * s.K, s.G * s.K, part},
                         {"dv", (s.H + s.G) * s.K, s.G * s.K, {.relative = 0}}});
       const auto terms = root(s.N * s.H);
       const auto dq_weight =
           o.adds("dq_weight", {s.K}, DType::fp32, {.drawn_scale = terms, .gpu_scale = terms});
       const auto dk_weight = o.adds("dk_weight", {s.K}, DType::fp32,
                                     {.drawn_scale = root(s.N * s.G), .gpu_scale = terms});
       const auto absmax = o.absmax_of(dqkv);
       o.takes_scratch = true;
       o.call = [=](const On& on) {
         qk_norm_backward(on.stream, on.scratch,
                          {on(dqkv), on(dq_weight), on(dk_weight), on(qkv), on(rstd), on(q_weight),
                           on(k_weight), static_cast<int>(s.H), static_cast<int>(s.G),
                           on(turns.table), on(turns.positions), on(absmax)});
       };
       o.expect_on_cpu = [=](const Results& r) {
         const auto g = reference::qk_norm_gradient(turns.backward(r[dqkv], s), r[qkv], s,
                                                    r[q_weight], r[k_weight]);
         r.close(dqkv, g.dqkv);
         r.close(dq_weight, g.dq_weight);
         r.close(dk_weight, g.dk_weight);
       };
     }});

}  // namespace lockstep::testing::qk_norm_cases
