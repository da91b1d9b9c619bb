#include "kernels/adamw.h"

#include <array>

#include "tests/kernels/adamw_modes.h"
#include "tests/kernels/operator_case.h"

namespace lockstep::testing::adamw_cases {

// The columns of each row of t, as a separate matrix.
Tensor columns_of(Bench& b, ConstTensor t, const AdamWRun::Columns& columns) {
  const auto rows = t.elements() / columns.stride;
  const Tensor part = b.poisoned({rows * columns.count}, t.dtype);
  for (std::int64_t j = 0; j < part.elements(); ++j)
    Bench::set(part, j,
               get(t, columns.first + j / columns.count * columns.stride + j % columns.count));
  return part;
}

// A parameter with its optimizer state, or some columns of one.
struct Parameter {
  Parameter(Operator& o, const AdamWMode& mode, std::int64_t n) {
    const auto bound = [](DType type) { return Bound{.rounds_alike = type == DType::bf16}; };
    weight = o.changes("weight", o.random({n}, mode.weight), bound(mode.weight));
    if (mode.master) master = o.changes("master", o.random({n}, DType::fp32));
    m = o.changes("m", o.random({n}, mode.moments, 0.1f), bound(mode.moments));
    const auto positive = o.random({n}, mode.moments, 0.01f);
    for (std::int64_t i = 0; i < n; ++i)
      Bench::set(positive, i, std::abs(get(positive, i)));
    v = o.changes("v", positive, bound(mode.moments));
    grad = o.in({n}, DType::fp32);
  }
  // `columns` of another parameter; with all of them, a copy.
  Parameter(Operator& o, const Parameter& whole, const AdamWRun::Columns& columns) {
    const auto part = [&](const char* name, Operand from) {
      if (!from) return Operand{};
      return o.changes(name, columns_of(o.b, o.tensor(from), columns), {.is_compared = false});
    };
    weight = part("weight of a part", whole.weight);
    master = part("master of a part", whole.master);
    m = part("m of a part", whole.m);
    v = part("v of a part", whole.v);
    grad = o.input(columns_of(o.b, o.tensor(whole.grad), columns));
  }

  // Elements [begin, end), which are first_index + begin, ... of the parameter.
  AdamWRun run(const On& on, std::int64_t first_index, std::int64_t begin, std::int64_t end) const {
    const auto part = [&](Operand x) { return x ? on(x).rows(begin, end - begin) : Tensor{}; };
    return {.weight = part(weight),
            .master = part(master),
            .m = part(m),
            .v = part(v),
            .grad = part(grad),
            .purpose = purpose_of("weight"),
            .first_index = first_index + begin};
  }
  std::array<Operand, 4> state() const { return {weight, master, m, v}; }

  Operand weight, master, m, v, grad;
};

// The scalars of a step that is applied, or skipped.
struct Scalars {
  Scalars(Operator& o, bool applied)
      : rate(o.in({1}, DType::fp32, 0.01f)),
        step(o.integers({41})),
        updates(o.integers({3})),
        control(o.values({5}, {0.7, 1.5, 3.5, applied ? 1.0 : 0.0, applied ? 2 : std::nan("")})) {}
  void update(const On& on, std::span<const AdamWRun> runs) const {
    adamw_update(on.stream, runs, {on(rate), on(step), on(updates), on(control)},
                 {.weight_decay = 0.3f, .seed = 42});
  }
  Operand rate, step, updates, control;
};

// Runs begin at any element of a parameter, and anywhere in memory. As for shards, many runs give
// the bits of one run. There are more runs than one launch of a GPU takes; they have 0 elements up
// to several blocks. absmax of some runs is raised to the stored weights and changes no bit. A
// skipped update changes nothing.
void make_update(Operator& o, const AdamWMode& mode) {
  const auto n = o.size[0], first = o.size[1], begin = std::min(n, o.size[2]);
  const bool applied = o.is_fixed() ? !o.coin() : o.draw.between(0, 7) > 0;
  const bool decay = o.coin(), raised = o.coin();
  const Scalars scalars(o, applied);
  const Parameter whole(o, mode, n), pieces(o, whole, {0, n, n});
  const auto before = o.b.poisoned({1}, DType::fp32);
  Bench::set(before, 0, raised ? 1000 : 0);
  const auto absmax = o.changes("absmax", before, {.is_compared = false});
  const auto asked = begin + (n - begin) / 2;  // runs before this element have absmax
  o.call = [=](const On& on) {
    std::array<AdamWRun, 80> runs;
    std::size_t used = 0;
    const auto add = [&](const Parameter& p, std::int64_t from, std::int64_t to) {
      runs[used] = p.run(on, first, from, to);
      runs[used++].decay = decay;
    };
    add(whole, begin, n);
    scalars.update(on, {runs.data(), 1});
    used = 0;
    for (std::int64_t from = begin, size = 0; from < asked; from += size++) {
      if (used == 77) size = asked - from;
      add(pieces, from, std::min(asked, from + size));
      runs[used - 1].absmax = on(absmax);
    }
    add(pieces, asked, n);
    scalars.update(on, {runs.data(), used});
  };
  o.expect_anywhere = [=](const Results& r) {
    for (std::size_t i = 0; i < 4; ++i) {
      const auto all = whole.state()[i], piece = pieces.state()[i];
      if (!all) continue;
      expect_bitwise_equal(r.tensor(piece), r.tensor(all), str("tensor ", i, " in pieces"));
      r.checked(all);  // adamw_test.cpp checks the values
      const auto is_kept = [&](std::int64_t from, std::int64_t to) {
        expect_bitwise_equal(r.tensor(all).rows(from, to - from),
                             r.before(all).rows(from, to - from), str("tensor ", i, " is kept"));
      };
      is_kept(0, begin);
      if (!applied) is_kept(begin, n);
    }
    double expected = raised ? 1000 : 0;
    for (auto i = begin; i < asked && applied; ++i)
      expected = std::max(expected, std::abs(get(r.tensor(pieces.weight), i)));
    EXPECT_EQ(r.after(absmax)[0], expected);
  };
}

// For tensor parallelism, a matrix is divided by columns, and each part at any element into two
// runs. The parts have the bits of the whole. This also holds far into a parameter, where the draw
// of an element takes all of its 32 bits.
void make_columns(Operator& o, const AdamWMode& mode) {
  const auto rows = o.size[0], unit = o.size[1], stride = unit * o.size[2];
  const auto skipped = o.coin() ? 0 : ((std::int64_t{1} << 35) / stride - rows) / 8 * 8;
  const Scalars scalars(o, true);
  const Parameter whole(o, mode, rows * stride);
  struct Columns {
    Parameter part;
    AdamWRun::Columns columns;
    std::int64_t cut;
  };
  std::vector<Columns> parts;
  for (std::int64_t first = 0; first < stride; first += parts.back().columns.count) {
    const auto count = std::min(stride - first, unit * o.draw.size(stride / unit));
    const AdamWRun::Columns columns{first, count, stride};
    parts.push_back({Parameter(o, whole, columns), columns, o.draw.between(0, rows * count)});
  }
  o.call = [=](const On& on) {
    const auto all = whole.run(on, skipped * stride, 0, rows * stride);
    scalars.update(on, {&all, 1});
    for (const auto& [part, columns, cut] : parts) {
      const auto before = skipped * columns.count;
      std::array<AdamWRun, 2> runs{part.run(on, before, 0, cut),
                                   part.run(on, before, cut, rows * columns.count)};
      runs[0].columns = runs[1].columns = columns;
      scalars.update(on, runs);
    }
  };
  o.expect_anywhere = [=](const Results& r) {
    for (const auto of : whole.state())
      if (of) r.checked(of);  // adamw_test.cpp checks the values
    Bench b;
    for (const auto& [part, columns, cut] : parts)
      for (std::size_t i = 0; i < 4; ++i)
        if (const auto of = whole.state()[i])
          expect_bitwise_equal(r.tensor(part.state()[i]), columns_of(b, r.tensor(of), columns),
                               str("tensor ", i, " of columns ", columns.first, "+", columns.count,
                                   " cut at ", cut));
  };
}

const bool kRegistered = [] {
  for (const auto& mode : kAdamWModes) {
    const auto suffix = str("_", mode.name);
    register_operator(
        {.name = "AdamWUpdate",
         .fixed = {{100, 0, 0}, {6003, 5, 0}, {100003, 5, 3}},
         .on_gpu = {{6003, 5, 0}},
         .draw_sizes = [](Draw& d) -> Sizes {
           const auto n = d.size(most({.cpu = 20000, .simulated = 3000, .real = 300000}));
           const std::int64_t firsts[] = {0, d.between(1, 100), 8 * d.between(1, 1000),
                                          (std::int64_t{1} << 35) - n};
           return {n, firsts[d.between(0, 3)], d.between(0, 9)};
         },
         .make = [mode](Operator& o) { make_update(o, mode); },
         .suffix = suffix});
    register_operator({.name = "AdamWColumns",
                       .draw_sizes = [](Draw& d) -> Sizes {
                         const auto unit = d.coin() ? 8 : 1;
                         return {d.size(most({.cpu = 40, .simulated = 20, .real = 300})), unit,
                                 d.size(most({.cpu = 600, .simulated = 300, .real = 3000}) / unit)};
                       },
                       .make = [mode](Operator& o) { make_columns(o, mode); },
                       .suffix = suffix});
  }
  return true;
}();

}  // namespace lockstep::testing::adamw_cases
