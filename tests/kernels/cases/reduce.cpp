#include "kernels/reduce.h"

#include <array>

#include "core/integer.h"
#include "tests/kernels/operator_case.h"

namespace lockstep::testing::reduce_cases {

// Sizes around the chunks of threads, multiples of packs or not, and 0.
const std::vector<Sizes> kFixed{{0}, {1}, {15}, {64}, {65}, {4097}, {65536}, {65537}, {1000003}};
Sizes draw_size(Draw& d) {
  const auto n = d.size(most({.cpu = 40000, .simulated = 40000, .real = 4000000}));
  return {d.coin() ? n : round_up(n, 8)};
}
double sum_of_squares_of(const Doubles& x) {
  double sum = 0;
  for (const double v : x)
    sum += v * v;
  return sum;
}
constexpr Bound kSum{.drawn_scale = 1, .gpu_scale = 1, .relative = 3e-7};

// As an option, the view begins between packs.
const bool kSquares =
    register_for_types({.name = "SumOfSquares",
                        .fixed = kFixed,
                        .on_gpu = {{0}},
                        .draw_sizes = draw_size,
                        .make = [](Operator& o) {
                          const auto n = o.size[0], first = o.coin() ? o.draw.between(1, 9) : 0;
                          const auto x = o.in({first + n}),
                                     sum = o.adds("sum", {1}, DType::fp32, kSum);
                          o.takes_scratch = n > 0;
                          o.call = [=](const On& on) {
                            const ConstTensor part = on(x).rows(first, n);
                            sum_of_squares(on.stream, on.scratch, on(sum), {&part, 1});
                          };
                          o.expect_on_cpu = [=](const Results& r) {
                            auto squares = r[x];
                            squares.erase(squares.begin(), squares.begin() + first);
                            r.close(sum, {sum_of_squares_of(squares)});
                          };
                        }});

// More tensors than one launch of a GPU takes. Their sizes are multiples of packs, or not.
const bool kMany =
    register_for_types({.name = "SumOfSquaresOfMany",
                        .fixed = {{1}, {8}},
                        .on_gpu = {{1}, {8}},
                        .make = [](Operator& o) {
                          const auto unit = o.size[0];
                          std::array<Operand, 154> tensors;
                          for (std::int64_t i = 0; i < 150; ++i)
                            tensors[static_cast<std::size_t>(i)] =
                                o.in({unit > 1     ? unit * (i % 7)
                                      : i % 7 == 3 ? 0
                                                   : 5 + 111 * i});
                          const std::int64_t large[] = {20000, most({.cpu = 70000, .real = 70000}),
                                                        1, most({.cpu = 65536, .real = 65536})};
                          for (std::size_t i = 0; i < 4; ++i)
                            tensors[150 + i] = o.in({large[i]});
                          const auto sum = o.adds("sum", {1}, DType::fp32, kSum);
                          o.takes_scratch = true;
                          o.call = [=](const On& on) {
                            std::array<ConstTensor, 154> all;
                            for (std::size_t i = 0; i < all.size(); ++i)
                              all[i] = on(tensors[i]);
                            sum_of_squares(on.stream, on.scratch, on(sum), all);
                          };
                          o.expect_on_cpu = [=](const Results& r) {
                            double expected = 0;
                            for (const auto x : tensors)
                              expected += sum_of_squares_of(r[x]);
                            r.close(sum, {expected});
                          };
                        }});

// NaNs are ignored.
const bool kAbsmax = register_for_types(
    {.name = "Absmax",
     .fixed = kFixed,
     .on_gpu = {{0}},
     .draw_sizes = draw_size,
     .make = [](Operator& o) {
       const auto n = o.size[0], first = o.coin() ? o.draw.between(1, 9) : 0;
       const auto x = o.random({first + n}, o.dtype);
       if (n > 0) Bench::set(x, first + o.draw.between(0, n - 1), -1.5);
       for (auto i = o.draw.between(0, 9); i < first + n; i += 3)
         Bench::set(x, i, std::nan(""));
       const auto in = o.input(x);
       const auto out = o.changes("absmax", o.random({1}, DType::fp32, 4), kExact);
       o.call = [=](const On& on) { absmax(on.stream, on(out), on(in).rows(first, n)); };
       o.expect_on_cpu = [=](const Results& r) {
         double expected = 0;
         for (std::int64_t i = first; i < first + n; ++i)
           if (const double v = get(r.before(in), i); !std::isnan(v))
             expected = std::max(expected, std::abs(v));
         r.close(out, {expected});
       };
     }});

const bool kRows = register_for_types(
    {.name = "SumRows",
     .fixed = {{1, 1}, {7, 33}, {300, 64}, {1000, 17}},
     .draw_sizes = [](Draw& d) -> Sizes {
       return {d.size(600), d.coin() ? d.size(80) : 8 * d.between(1, 40)};
     },
     .make =
         [](Operator& o) {
           const auto R = o.size[0], C = o.size[1];
           const auto x = o.in({R, C});
           const auto sums =
               o.adds("sums", {C}, DType::fp32, {.drawn_scale = root(R), .gpu_scale = 1});
           o.takes_scratch = true;
           o.call = [=](const On& on) { sum_rows(on.stream, on.scratch, on(sums), on(x)); };
           o.expect_on_cpu = [=](const Results& r) {
             const auto all = r[x];
             Doubles expected(static_cast<std::size_t>(C));
             for (std::size_t i = 0; i < all.size(); ++i)
               expected[i % expected.size()] += all[i];
             r.close(sums, expected);
           };
         }});

}  // namespace lockstep::testing::reduce_cases
