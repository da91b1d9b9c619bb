#include "kernels/adamw.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::adamw_test {

struct Mode {
  const char* name;
  DType weight;
  bool master;
  DType moments;
};
constexpr Mode kModes[] = {
    {"fp32", DType::fp32, false, DType::fp32},
    {"fp32_with_bf16_moments", DType::fp32, false, DType::bf16},
    {"fp32_with_master", DType::fp32, true, DType::fp32},
    {"bf16_with_master", DType::bf16, true, DType::fp32},
    {"bf16_with_master_and_bf16_moments", DType::bf16, true, DType::bf16},
    {"bf16_stochastic", DType::bf16, false, DType::fp32},
    {"bf16_stochastic_and_bf16_moments", DType::bf16, false, DType::bf16},
};

struct AdamWCuda : ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(modes, AdamWCuda, ::testing::ValuesIn(kModes),
                         [](const auto& p) { return std::string(p.param.name); });

// A parameter on both sides, with the scalars of a step that is applied.
struct Parameter {
  Parameter(Twins& t, const Mode& mode, std::int64_t n, float applied = 1)
      : weight(t.random({n}, mode.weight)),
        master(mode.master ? t.random({n}, DType::fp32) : Twin{}),
        m(t.random({n}, mode.moments, 0.1f)),
        v(t.random({n}, mode.moments, 0.01f)),
        grad(t.random({n}, DType::fp32)),
        learning_rate(t.random({1}, DType::fp32, 0.01f)),
        step(t.integers({41})),
        updates(t.integers({3})),
        control(t.random({5}, DType::fp32)) {
    for (std::int64_t i = 0; i < n; ++i)
      Bench::set(v.host, i, std::abs(get(v.host, i)));
    t.upload(v.device, v.host);
    const float values[] = {0.7f, 1.5f, 3.5f, applied, 2.0f};
    std::copy(std::begin(values), std::end(values), control.host.as<float>());
    t.upload(control.device, control.host);
  }

  // Elements [begin, end), which are first_index + begin, ... of the parameter.
  AdamWRun run(const Side& on, std::int64_t first_index, std::int64_t begin, std::int64_t end,
               bool decay = true) const {
    const auto part = [&](const Twin& whole) {
      return whole.host ? on(whole).rows(begin, end - begin) : Tensor{};
    };
    return {.weight = part(weight),
            .master = part(master),
            .m = part(m),
            .v = part(v),
            .grad = part(grad),
            .decay = decay,
            .purpose = purpose_of("weight"),
            .first_index = first_index + begin};
  }
  void update(const Side& on, const std::vector<AdamWRun>& runs) const {
    adamw_update(on.stream, runs, {on(learning_rate), on(step), on(updates), on(control)},
                 {.weight_decay = 0.3f, .seed = 42});
  }

  Twin weight, master, m, v, grad, learning_rate, step, updates, control;
};

// fp32 values may differ by rounding, so that now and then one crosses the random bits that it is
// rounded with; other random bits would show in half of the elements.
void expect_same_rounding(Twins& t, const Twin& x, const std::string& what) {
  t.expect_close(x, what);
  if (x.host.dtype == DType::fp32) return;
  const Tensor actual = t.download(x.device);
  std::int64_t differ = 0;
  for (std::int64_t i = 0; i < actual.elements(); ++i)
    differ += get(actual, i) != get(x.host, i) ? 1 : 0;
  EXPECT_LE(differ, 1 + actual.elements() / 100) << what;
}

void expect_same(Twins& t, const Parameter& p) {
  expect_same_rounding(t, p.weight, "weight");
  if (p.master.host) t.expect_close(p.master, "master");
  expect_same_rounding(t, p.m, "m");
  expect_same_rounding(t, p.v, "v");
}

// Runs begin at any element of a parameter, and anywhere in memory.
TEST_P(AdamWCuda, update_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto n = draw.size(CudaTest::most(3000, 300000));
    const Parameter p(t, GetParam(), n);
    const std::int64_t firsts[] = {0, draw.between(1, 100), 8 * draw.between(1, 1000),
                                   (std::int64_t{1} << 35) - n};
    const auto first = firsts[draw.between(0, 3)], begin = draw.between(0, std::min(n, 9l));
    const bool decay = draw.coin();
    SCOPED_TRACE(str("n ", n, " first_index ", first, " from ", begin));
    t.run([&](const Side& on) { p.update(on, {p.run(on, first, begin, n, decay)}); });
    expect_same(t, p);
  });
}

// More runs than one launch is told, of no elements to several blocks.
TEST_P(AdamWCuda, an_update_in_pieces_has_the_same_bits) {
  constexpr std::int64_t kSize = 6003, kFirst = 5;
  std::vector<Tensor> whole;
  Bench kept;
  for (const bool in_pieces : {false, true}) {
    Twins t(1);
    const Parameter p(t, GetParam(), kSize);
    t.run([&](const Side& on) {
      std::vector<AdamWRun> runs;
      std::int64_t begin = 0;
      for (std::int64_t size = 0; in_pieces && begin < 3000; begin += size++)
        runs.push_back(p.run(on, kFirst, begin, begin + size));
      runs.push_back(p.run(on, kFirst, begin, kSize));
      p.update(on, runs);
    });
    for (const Twin& x : {p.weight, p.m, p.v})
      if (in_pieces) {
        expect_bitwise_equal(t.download(x.device), whole.front(), "pieces");
        whole.erase(whole.begin());
      } else {
        whole.push_back(kept.copy(t.download(x.device)));
      }
  }
}

// Columns of each row of t, as a matrix of their own.
Tensor columns_of(Bench& b, ConstTensor t, const AdamWRun::Columns& columns, std::int64_t rows) {
  const Tensor part = b.poisoned({rows * columns.count}, t.dtype);
  for (std::int64_t j = 0; j < part.elements(); ++j)
    Bench::set(part, j,
               get(t, columns.first + j / columns.count * columns.stride + j % columns.count));
  return part;
}

// Parts of a matrix that is divided by columns, each in two runs that meet anywhere. Also far into
// a parameter, where the draw of an element takes all of its 32 bits.
TEST_P(AdamWCuda, parts_of_a_matrixs_columns_have_the_bits_of_the_whole) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    Bench b;
    const std::int64_t unit = draw.coin() ? 8 : 1;
    const auto rows = draw.size(CudaTest::most(20, 300)),
               stride = unit * draw.size(CudaTest::most(300, 3000) / unit);
    // Rows of the whole before the first one here.
    const auto skipped = draw.coin() ? 0 : ((std::int64_t{1} << 35) / stride - rows) / 8 * 8;
    const Parameter whole(t, GetParam(), rows * stride);
    std::vector<std::pair<Parameter, AdamWRun::Columns>> parts;
    std::vector<std::int64_t> cuts;
    for (std::int64_t first = 0; first < stride;) {
      const auto count = std::min(stride - first, unit * draw.size(stride / unit));
      const AdamWRun::Columns columns{first, count, stride};
      Parameter part = whole;
      for (Twin* x : {&part.weight, &part.master, &part.m, &part.v, &part.grad})
        if (x->host) *x = t.add(columns_of(b, x->host, columns, rows));
      cuts.push_back(draw.between(0, rows * count));
      parts.emplace_back(part, columns);
      first += count;
    }
    SCOPED_TRACE(str("rows ", rows, " of ", stride, ", ", parts.size(), " parts, row ", skipped));
    t.run([&](const Side& on) {
      whole.update(on, {whole.run(on, skipped * stride, 0, rows * stride)});
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto& [part, columns] = parts[i];
        const auto before = skipped * columns.count;
        std::vector<AdamWRun> runs{part.run(on, before, 0, cuts[i]),
                                   part.run(on, before, cuts[i], rows * columns.count)};
        runs[0].columns = runs[1].columns = columns;
        part.update(on, runs);
      }
    });
    for (const auto& [part, columns] : parts)
      for (const auto& [x, of] :
           {std::pair{&part.weight, &whole.weight}, {&part.m, &whole.m}, {&part.v, &whole.v}}) {
        expect_bitwise_equal(t.download(x->device),
                             columns_of(b, t.download(of->device), columns, rows),
                             str("columns ", columns.first, "+", columns.count));
        expect_bitwise_equal(x->host, columns_of(b, of->host, columns, rows), "of the CPU");
      }
  });
}

// Several blocks, groups in part, and a run without.
TEST_P(AdamWCuda, absmax_is_that_of_the_weights_and_changes_no_bit) {
  constexpr std::int64_t kSize = 6003, kFirst = 5, kEnd = 4000;
  std::vector<Tensor> plain;
  Bench kept;
  for (const bool asked : {false, true}) {
    Twins t(1);
    const Parameter p(t, GetParam(), kSize);
    const auto absmax = t.random({1}, DType::fp32);
    Bench::set(absmax.host, 0, 0);
    t.upload(absmax.device, absmax.host);
    t.run([&](const Side& on) {
      std::vector<AdamWRun> runs{p.run(on, kFirst, 0, 777), p.run(on, kFirst, 777, kEnd),
                                 p.run(on, kFirst, kEnd, kSize)};
      if (asked) runs[0].absmax = runs[1].absmax = on(absmax);
      p.update(on, runs);
    });
    const Twin all[] = {p.weight, p.m, p.v, p.master.host ? p.master : p.weight};
    for (std::size_t i = 0; i < std::size(all); ++i)
      if (asked)
        expect_bitwise_equal(t.download(all[i].device), plain[i], str("tensor ", i));
      else
        plain.push_back(kept.copy(t.download(all[i].device)));
    if (!asked) continue;
    expect_absmax(absmax.host, p.weight.host.rows(0, kEnd));
    expect_absmax(t.download(absmax.device), t.download(p.weight.device).rows(0, kEnd));
  }
}

TEST_P(AdamWCuda, a_skipped_update_changes_no_bit) {
  Twins t(1);
  const Parameter p(t, GetParam(), 100, 0);
  t.run([&](const Side& on) { p.update(on, {p.run(on, 0, 0, 100)}); });
  t.expect_equal(p.weight, "weight");
  t.expect_equal(p.m, "m");
  t.expect_equal(p.v, "v");
}

struct AdamWControlCuda : CudaTest {};

TEST_F(AdamWControlCuda, control_equals_the_cpu_kernel) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const float squares : {0.0f, 0.04f, 400.0f, infinity, nan})
    for (const float loss : {3.0f, infinity, nan})
      for (const std::int32_t valid : {0, 1, 70})
        for (const float clip : {0.0f, 1.0f}) {
          Twins t(1);
          const auto sums = t.random({2}, DType::fp32), rate = t.random({1}, DType::fp32);
          sums.host.as<float>()[0] = squares;
          sums.host.as<float>()[1] = loss;
          t.upload(sums.device, sums.host);
          const auto tokens = t.integers({valid}), step = t.integers({9}),
                     updates = t.integers({3});
          const auto control = t.poisoned({5}, DType::fp32), absmax = t.random({70}, DType::fp32);
          t.run([&](const Side& on) {
            adamw_control(on.stream, {on(rate), on(step), on(updates), on(control), on(absmax)},
                          {on(sums).rows(0, 1), on(sums).rows(1, 1), on(tokens)},
                          {.clip_norm = clip, .nominal_tokens = 100});
          });
          SCOPED_TRACE(str("squares ", squares, " loss ", loss, " valid ", valid));
          t.expect_equal(updates, "updates");
          t.expect_equal(absmax, "absmax");
          const Tensor actual = t.download(control.device);
          for (int i = 0; i < 5; ++i)
            EXPECT_TRUE(get(actual, i) == get(control.host, i) ||
                        std::abs(get(actual, i) / get(control.host, i) - 1) < 1e-6 ||
                        (std::isnan(get(actual, i)) && std::isnan(get(control.host, i))))
                << "control " << i << ": " << get(actual, i);
        }
}

}  // namespace lockstep::testing::adamw_test
