#include "kernels/embedding.h"

#include "tests/kernels/operator_case.h"

namespace lockstep::testing::embedding_cases {

const std::vector<Sizes> kFixed{{1, 1, 1, 1}, {7, 33, 5, 3}, {300, 20, 11, 64}, {65, 768, 100, 16}};
template <int kTokens, int kTokensOnGpu, int kRowsOnGpu>
Sizes draw_sizes(Draw& d) {
  const auto N = d.between(0, 7) == 0
                     ? 0
                     : d.size(most({.cpu = 500, .simulated = kTokens, .real = kTokensOnGpu}));
  const auto D = !is_on_gpu() ? d.size(300) : d.coin() ? d.size(50) : 8 * d.between(1, 140);
  return {N, D, d.size(most({.cpu = 300, .simulated = kRowsOnGpu, .real = kRowsOnGpu})),
          d.size(most({.cpu = 100, .simulated = 300, .real = 300}))};
}

// Ids in [0, rows): any, a few, or a single one. As an option, the ids of the first half are equal.
std::vector<std::int32_t> draw_ids(Operator& o, std::int64_t N, std::int64_t rows) {
  const std::int64_t bounds[] = {1, std::min<std::int64_t>(rows, 3), rows};
  const auto bound = bounds[o.is_fixed() ? 2 : o.draw.between(0, 2)];
  const auto alike = o.coin() ? N / 2 : 0;
  auto ids = draw_below(o.draw, N, bound);
  for (std::int64_t n = 0; n < N; ++n)
    ids[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(
        n < alike ? rows - 1 : rows - 1 - ids[static_cast<std::size_t>(n)]);
  return ids;
}

// Batch draws the ids and positions of a batch. As an option, it is a rank with a part of the
// table, which adds the positions of some tokens: any, none or all.
struct Batch {
  explicit Batch(Operator& o)
      : N(o.size[0]), D(o.size[1]), V(o.size[2]), P(o.size[3]), learned(o.coin()) {
    part = {.first_id = 0, .table_rows = V, .position_begin = 0, .position_end = N};
    if (o.coin()) {
      part.first_id = o.draw.between(0, V);
      part.position_begin = o.draw.between(0, N);
      part.position_end = o.draw.between(part.position_begin, N);
    }
    rows = part.first_id > 0 ? o.draw.between(0, V - part.first_id) : V;
    all_ids = draw_ids(o, N, V);
    all_positions = draw_ids(o, N, P);
    ids = o.integers(all_ids, {N});
    positions = o.integers(all_positions, {N});
  }
  // The row of token n in the table of the rank; -1: none.
  std::int64_t row(std::int64_t n) const {
    const auto at = all_ids[static_cast<std::size_t>(n)] - part.first_id;
    return at >= 0 && at < rows ? at : -1;
  }
  std::int64_t position(std::int64_t n) const {
    if (!learned || n < part.position_begin || n >= part.position_end) return -1;
    return all_positions[static_cast<std::size_t>(n)];
  }

  std::int64_t N, D, V, P, rows = 0;
  bool learned;
  EmbeddingPart part;
  std::vector<std::int32_t> all_ids, all_positions;
  Operand ids, positions;
};

const bool kForward = register_for_types(
    {.name = "EmbeddingForward",
     .fixed = kFixed,
     .draw_sizes = draw_sizes<40, 3000, 100>,
     .make = [](Operator& o) {
       const Batch b(o);
       const auto weight = o.in({b.rows, b.D});
       const auto place = b.learned ? o.in({b.P, b.D}) : Operand{};
       const auto y = o.out("y", {b.N, b.D}, kExact);
       o.call = [=](const On& on) {
         embedding_forward(on.stream,
                           {on(y), on(b.ids), on(weight), on(b.positions), on(place), b.part});
       };
       o.expect_on_cpu = [=](const Results& r) {
         const auto w = r[weight], p = r[place];
         Doubles expected;
         for (std::int64_t n = 0; n < b.N; ++n)
           for (std::int64_t d = 0; d < b.D; ++d) {
             const auto at = [&](const Doubles& table, std::int64_t row) {
               return row < 0 ? 0.0f
                              : static_cast<float>(table[static_cast<std::size_t>(row * b.D + d)]);
             };
             const float sum = at(w, b.row(n)) + at(p, b.position(n));
             expected.push_back(rounded_to(r.tensor(y).dtype, double{sum}));
           }
         r.close(y, expected);
       };
     }});

// Sums are fp32, in the order of n, so the result is exact on a CPU. Therefore the sum over the
// parts of all ranks is the whole.
const bool kBackward = register_for_types(
    {.name = "EmbeddingBackward",
     .fixed = kFixed,
     .draw_sizes = draw_sizes<300, 5000, 700>,
     .make = [](Operator& o) {
       const Batch b(o);
       const Bound bound{.gpu_scale = root(b.N + 1), .relative = 0};
       const auto dweight = o.changes("dweight", o.random({b.rows, b.D}, DType::fp32), bound);
       const auto dplace =
           b.learned ? o.changes("dposition_weight", o.random({b.P, b.D}, DType::fp32), bound)
                     : Operand{};
       const auto dy = o.in({b.N, b.D});
       o.takes_scratch = is_on_gpu() && b.N > 0;  // the sort of a GPU
       o.call = [=](const On& on) {
         embedding_backward(on.stream, on.scratch,
                            {on(dweight), on(dplace), on(dy), on(b.ids), on(b.positions), b.part});
       };
       o.expect_on_cpu = [=](const Results& r) {
         auto weight = r[dweight], place = r[dplace];
         const auto gradient = r[dy];
         for (std::int64_t i = 0; i < b.N * b.D; ++i) {
           const auto add = [&](Doubles& to, std::int64_t row) {
             if (row < 0) return;
             double& sum = to[static_cast<std::size_t>(row * b.D + i % b.D)];
             sum = rounded_to(DType::fp32, sum + gradient[static_cast<std::size_t>(i)]);
           };
           add(weight, b.row(i / b.D));
           add(place, b.position(i / b.D));
         }
         r.close(dweight, weight);
         if (b.learned) r.close(dplace, place);
       };
     }});

}  // namespace lockstep::testing::embedding_cases
