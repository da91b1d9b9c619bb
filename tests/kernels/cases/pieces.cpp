#include "kernels/pieces.h"

#include <bit>

#include "core/mix.h"
#include "kernels/content_hash.h"
#include "tests/kernels/operator_case.h"

namespace lockstep::testing::pieces_cases {

DType other_type(Operator& o) {
  if (!o.coin()) return o.dtype;
  return o.dtype == DType::fp32 ? DType::bf16 : DType::fp32;
}

// Columns of each piece, in the order of the second index. Columns are multiples of packs, or any.
const bool kPack = register_for_types(
    {.name = "PackPieces",
     .fixed = {{1, 1, 1, 0, 1}, {3, 4, 40, 8, 16}, {2, 5, 37, 5, 31}, {2, 3, 40000, 100, 39000}},
     .draw_sizes = [](Draw& d) -> Sizes {
       const auto unit = d.coin() ? 8 : 1;
       const auto n = unit * d.size(most({.cpu = 400, .simulated = 200, .real = 20000}) / unit);
       const auto first = unit * d.between(0, n / unit - 1);
       return {d.between(1, most({.cpu = 9, .simulated = 5, .real = 5})),
               d.between(1, most({.cpu = 9, .simulated = 5, .real = 5})), n, first,
               unit * d.between(0, (n - first) / unit)};
     },
     .make =
         [](Operator& o) {
           const auto A = o.size[0], I = o.size[1], n = o.size[2], first = o.size[3], m = o.size[4];
           const auto in = o.in({A, I, n}), out = o.out("out", {I, A, m}, other_type(o), kExact);
           o.call = [=](const On& on) { pack_pieces(on.stream, on(out), on(in), first); };
           o.expect_on_cpu = [=](const Results& r) {
             Doubles expected;
             for (std::int64_t i = 0; i < I; ++i)
               for (std::int64_t a = 0; a < A; ++a)
                 for (std::int64_t j = 0; j < m; ++j)
                   expected.push_back(rounded_to(r.tensor(out).dtype,
                                                 get(r.before(in), (a * I + i) * n + first + j)));
             r.close(out, expected);
           };
         }});

// Sums are fp32, exactly in the order of kernels/pieces.h, also on a GPU. They are close to the
// float64 sum.
const bool kSum = register_for_types(
    {.name = "SumPieces",  // P, C (of the bias), rows
     .fixed = {{1, 1, 1}, {2, 35000, 2}, {3, 37, 50}, {8, 777, 60}, {1000, 15, 3}},
     .on_gpu = {{1000, 24, 3}, {1001, 5, 3}},
     .draw_sizes = [](Draw& d) -> Sizes {
       const std::int64_t some[] = {1, 2, 4, 8, d.between(3, 40)};
       const auto P = some[d.between(0, 4)];
       return {P, d.coin() ? 8 * d.between(1, 40) : d.size(300),
               d.between(0, most({.cpu = 40, .simulated = 8, .real = 1000}))};
     },
     .make =
         [](Operator& o) {
           const auto P = o.size[0], C = o.size[1], n = C * o.size[2];
           const bool biased = o.coin(), residual = o.coin() && n > 0, add = o.coin();
           const auto to = other_type(o);
           const auto pieces = o.in({P, n}), bias = biased ? o.in({C}) : Operand{};
           const auto out =
               add ? o.changes("out", o.random({n}, to), kExact) : o.out("out", {n}, to, kExact);
           const auto absmax = o.absmax_of(out);
           // With `add`, the residual may be the previous value of out, which is then added twice.
           const auto past = !residual                          ? Operand{}
                             : add && to == o.dtype && o.coin() ? out
                                                                : o.in({n});
           if (residual && !add && to == o.dtype) o.may_be(out, {past});
           o.call = [=](const On& on) {
             sum_pieces(on.stream, {.out = on(out),
                                    .pieces = on(pieces),
                                    .bias = on(bias),
                                    .residual = on(past),
                                    .add = add,
                                    .absmax = on(absmax)});
           };
           o.expect_on_cpu = [=](const Results& r) {
             const auto all = r[pieces], b = r[bias], rest = r[past], before = r[out];
             Doubles expected, in_order;
             for (std::size_t j = 0; j < before.size(); ++j) {
               double sum = all[j];
               auto rounded = static_cast<float>(sum);
               const auto plus = [&](double x) {
                 sum += x;
                 rounded += static_cast<float>(x);
               };
               for (auto i = j + before.size(); i < all.size(); i += before.size())
                 plus(all[i]);
               if (biased) plus(b[j % b.size()]);
               if (residual) plus(rest[j]);
               if (add) plus(before[j]);
               expected.push_back(sum);
               in_order.push_back(rounded_to(to, static_cast<double>(rounded)));
             }
             r.close(out, in_order);
             expect_close(r.tensor(out), expected, tolerance(to), "out in float64", root(P + 3));
           };
         }});

// The sum of kernels/content_hash.h, element by element.
std::uint64_t hash_of(ConstTensor x, const HashPlace& p) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const auto j = p.first_index + i;
    const auto e = p.first + j / p.columns * p.stride + j % p.columns;
    const std::uint64_t bits = x.dtype == DType::bf16
                                   ? x.as<BFloat16>()[i].bits
                                   : std::bit_cast<std::uint32_t>(x.as<float>()[i]);
    sum += mix64((p.purpose + static_cast<std::uint64_t>(e)) * kGolden64 ^ bits);
  }
  return sum;
}
const bool kHash = register_for_types(
    {.name = "ContentHash",
     .fixed = {{0}, {1}, {17}, {64}, {65}, {40000}, {100003}},
     .draw_sizes = [](Draw& d) -> Sizes {
       return {d.size(most({.cpu = 20000, .simulated = 20000, .real = 4000000}))};
     },
     .make =
         [](Operator& o) {
           const bool divided = o.coin(), carries = o.coin();
           const auto columns = o.draw.size(1000);
           const HashPlace place{.purpose = purpose_of("x"),
                                 .first_index = divided ? o.draw.between(0, 1 << 20) : 0,
                                 .first = divided ? o.draw.between(0, 1000) : 0,
                                 .columns = columns,
                                 .stride = divided ? columns * o.draw.between(1, 8) : columns};
           const auto x = o.in({o.size[0]});
           const std::int32_t low = carries ? -1 : 5, high = carries ? -1 : 3;
           const auto hash = o.changes("hash", o.b.integers({low, high}), kExact);
           o.call = [=](const On& on) { add_content_hash(on.stream, on(hash), on(x), place); };
           o.expect_on_cpu = [=](const Results& r) {
             const auto before = static_cast<std::uint64_t>(static_cast<std::uint32_t>(high))
                                     << 32 |
                                 static_cast<std::uint32_t>(low);
             const auto sum = before + hash_of(r.before(x), place);
             r.close(hash, {static_cast<double>(static_cast<std::int32_t>(sum)),
                            static_cast<double>(static_cast<std::int32_t>(sum >> 32))});
           };
         }});

}  // namespace lockstep::testing::pieces_cases
