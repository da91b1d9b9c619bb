#include "kernels/elementwise.h"

#include <numbers>

#include "tests/kernels/operator_case.h"

namespace lockstep::testing::elementwise_cases {

// Sizes around those of vectors, blocks and pieces of threads.
const std::vector<Sizes> kFixed{{1}, {15}, {16}, {17}, {63}, {65}, {1000}, {16384}, {70001}};
Sizes draw_size(Draw& d) {
  return {d.size(most({.cpu = 5000, .simulated = 5000, .real = 5000000}))};
}

// A part that begins at any element, aligned to packs or not. The rest must not change.
struct Range {
  std::int64_t first, count;
  Tensor of(const Tensor& t) const { return t.rows(first, count); }
};
Range draw_range(Operator& o) {
  const auto n = o.size[0];
  if (!o.coin()) return {0, n};
  const auto first = o.draw.between(0, n - 1);
  return {first, o.draw.between(0, n - first)};
}

const bool kFill = register_for_types(
    {.name = "Fill", .fixed = kFixed, .draw_sizes = draw_size, .make = [](Operator& o) {
       const auto n = o.size[0];
       const auto part = draw_range(o);
       const auto out = o.changes("out", o.random({n}, o.dtype), kExact);
       const auto integers = o.changes("integers", o.random({n}, DType::int32, 100), kExact);
       o.call = [=](const On& on) {
         fill(on.stream, part.of(on(out)), 0.3f);
         fill_integer(on.stream, part.of(on(integers)), (1 << 30) + 1);
       };
       o.expect_on_cpu = [=](const Results& r) {
         const auto filled = [&](Operand x, double value) {
           auto expected = r[x];
           std::fill_n(expected.begin() + part.first, part.count, value);
           r.close(x, expected);
         };
         filled(out, rounded_to(r.tensor(out).dtype, double{0.3f}));
         filled(integers, (1 << 30) + 1);
       };
     }});

// Elements are rounded once, or copied.
const bool kConvert = register_for_types(
    {.name = "Convert", .fixed = kFixed, .draw_sizes = draw_size, .make = [](Operator& o) {
       const auto n = o.size[0];
       const auto part = draw_range(o);
       const auto x = o.in({n});
       const auto fp32 = o.changes("fp32", o.random({n}, DType::fp32), kExact);
       const auto bf16 = o.changes("bf16", o.random({n}, DType::bf16), kExact);
       o.call = [=](const On& on) {
         convert(on.stream, part.of(on(fp32)), part.of(on(x)));
         convert(on.stream, part.of(on(bf16)), part.of(on(x)));
       };
       o.expect_on_cpu = [=](const Results& r) {
         const auto from = r[x];
         for (const auto y : {fp32, bf16}) {
           auto expected = r[y];
           for (auto i = part.first; i < part.first + part.count; ++i)
             expected[static_cast<std::size_t>(i)] =
                 rounded_to(r.tensor(y).dtype, from[static_cast<std::size_t>(i)]);
           r.close(y, expected);
         }
       };
     }});

// z of element i by the formula, in float64.
double normal(const RandomNormal& args, std::int64_t at) {
  const auto i = static_cast<std::uint64_t>(args.first_index + at);
  const auto words = philox(args.seed, args.purpose, i / 4);
  const auto pair = i % 4 / 2 * 2;
  const double radius = std::sqrt(-2 * std::log(static_cast<double>(uniform_open(words[pair]))));
  const double angle = 2 * std::numbers::pi * static_cast<double>(uniform_open(words[pair + 1]));
  return radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

const bool kNormal = register_for_types(
    {.name = "RandomNormal", .fixed = kFixed, .draw_sizes = draw_size, .make = [](Operator& o) {
       const bool far = o.coin(), odd = o.coin();
       const auto some = o.is_fixed() ? 4 : o.draw.between(0, 4000);
       const RandomNormal args{.seed = o.draw.seed() << 33,
                               .purpose = purpose_of("weights"),
                               .first_index = far   ? (std::int64_t{1} << 36) + odd
                                              : odd ? some + 3
                                                    : some,
                               .std = 0.02f};
       const auto z = o.out("z", {o.size[0]});
       o.call = [=](const On& on) { random_normal(on.stream, on(z), args); };
       o.expect_on_cpu = [=](const Results& r) {
         Doubles expected;
         for (std::int64_t i = 0; i < r.tensor(z).elements(); ++i)
           expected.push_back(0.02 * normal(args, i));
         r.close(z, expected);
       };
     }});

}  // namespace lockstep::testing::elementwise_cases
