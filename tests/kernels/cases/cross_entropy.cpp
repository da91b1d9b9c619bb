#include "kernels/cross_entropy.h"

#include <limits>

#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference.h"

namespace lockstep::testing::cross_entropy_cases {

// Logits [rows, columns]. From column `vocabulary` on, padding holds values that would change any
// result that depends on them.
Tensor draw_logits(Operator& o, std::int64_t rows, std::int64_t columns, std::int64_t vocabulary) {
  const auto logits = o.random({rows, columns}, o.dtype, 8);
  for (std::int64_t i = 0; i < logits.elements(); ++i)
    if (i % columns >= vocabulary) Bench::set(logits, i, i % 2 == 0 ? std::nan("") : 1e30);
  return logits;
}
// None, some, nearly all or all rows are masked. A GPU has few draws: most of them mask some rows.
// A fixed shape masks every fifth row.
std::vector<std::int32_t> draw_targets(Operator& o, std::int64_t rows, std::int64_t vocabulary) {
  const std::int64_t percents[] = {0, 20, 95, 100};
  const auto masked = o.is_fixed()                              ? 0
                      : is_on_gpu() && o.draw.between(0, 3) > 0 ? 25
                                                                : percents[o.draw.between(0, 3)];
  auto targets = draw_below(o.draw, rows, vocabulary);
  for (std::size_t n = 0; n < targets.size(); ++n)
    if (o.is_fixed() ? n % 5 == 4 : o.draw.between(0, 99) < masked) targets[n] = -1;
  return targets;
}

// Rows are multiples of packs, or of any size.
const std::vector<Sizes> kFixed{{1, 1, 1},     {3, 16, 16},     {5, 40, 33},      {37, 300, 300},
                                {9, 300, 257}, {2, 9000, 8999}, {4, 50304, 50257}};
Sizes draw_sizes(Draw& d) {
  const auto rows = is_on_gpu() ? d.between(0, most({.simulated = 4, .real = 500})) : d.size(100);
  const auto columns = is_on_gpu() && d.coin()
                           ? 8 * d.between(1, 2500)
                           : d.size(most({.cpu = 2000, .simulated = 3000, .real = 3000}));
  return {rows, columns, d.between(std::max<std::int64_t>(1, columns - 40), columns)};
}
constexpr Bound kLoss{.drawn_scale = 8, .gpu_scale = 8};

reference::CrossEntropySetting setting_of(const CrossEntropy& args, std::int64_t columns) {
  return {static_cast<std::size_t>(columns), static_cast<std::size_t>(args.vocabulary),
          double{args.gradient_scale}, double{args.z_loss}};
}
CrossEntropy draw_options(Operator& o, std::int64_t vocabulary) {
  return {.targets = {},
          .vocabulary = static_cast<int>(vocabulary),
          .gradient_scale = o.is_fixed() ? 0.125f : 1 / static_cast<float>(o.draw.between(1, 100)),
          .z_loss = o.coin() ? 1e-2f : 0.0f};
}

// Evaluation has no z_loss.
template <bool kGradient>
void make(Operator& o) {
  const auto rows = o.size[0], columns = o.size[1], vocabulary = o.size[2];
  const auto options = draw_options(o, vocabulary);
  const double scale = double{options.gradient_scale};
  const auto before = draw_logits(o, rows, columns, vocabulary);
  const auto logits =
      kGradient ? o.changes("gradient", before, {.drawn_scale = scale, .gpu_scale = scale})
                : o.input(before);
  const auto classes = draw_targets(o, rows, vocabulary);
  const auto targets = o.integers(classes, {rows});
  const auto losses = o.out("losses", {rows}, DType::fp32, kLoss);
  o.call = [=](const On& on) {
    auto args = options;
    args.losses = on(losses);
    args.targets = on(targets);
    if (kGradient)
      cross_entropy_gradient(on.stream, on(logits), args);
    else
      cross_entropy_loss(on.stream, on(logits), args);
  };
  o.expect_on_cpu = [=](const Results& r) {
    auto setting = setting_of(options, columns);
    if (kGradient)
      r.close(logits, reference::cross_entropy_gradient(r[logits], classes, setting));
    else
      setting.z_loss = 0;
    r.close(losses, reference::cross_entropy(r[logits], classes, setting));
  };
}
const bool kLosses = register_for_types(
    {.name = "CrossEntropyLoss", .fixed = kFixed, .draw_sizes = draw_sizes, .make = make<false>});
const bool kGradient = register_for_types({.name = "CrossEntropyGradient",
                                           .fixed = kFixed,
                                           .draw_sizes = draw_sizes,
                                           .make = make<true>});

// Columns are divided among 1 to 5 ranks. Some ranks may hold only padding.
const bool kRanks = register_for_types(
    {.name = "CrossEntropyInParts",
     .draw_sizes = [](Draw& d) -> Sizes {
       const auto ranks = d.between(1, most({.cpu = 5, .simulated = 4, .real = 4}));
       const auto rows =
           is_on_gpu() ? d.between(0, most({.simulated = 4, .real = 300})) : d.size(30);
       const auto columns = is_on_gpu() && d.coin()
                                ? 8 * d.between(1, 900)
                                : d.size(most({.cpu = 600, .simulated = 1000, .real = 1000}));
       return {ranks, rows, columns, d.between(1, ranks * columns)};
     },
     .make =
         [](Operator& o) {
           const auto ranks = o.size[0], rows = o.size[1], columns = o.size[2],
                      vocabulary = o.size[3];
           const auto options = draw_options(o, vocabulary);
           const double scale = double{options.gradient_scale};
           const auto classes = draw_targets(o, rows, vocabulary);
           const auto targets = o.integers(classes, {rows});
           const auto parts = o.out("parts", {ranks, rows, 3}, DType::fp32);
           struct Rank {
             Operand logits, losses, plain;
           };
           std::vector<Rank> all;
           for (std::int64_t rank = 0; rank < ranks; ++rank)
             all.push_back(
                 {o.changes("gradient",
                            draw_logits(o, rows, columns,
                                        std::max<std::int64_t>(0, vocabulary - rank * columns)),
                            {.drawn_scale = scale, .gpu_scale = scale}),
                  o.out("losses", {rows}, DType::fp32, kLoss),
                  o.out("losses of evaluation", {rows}, DType::fp32, kLoss)});
           o.call = [=](const On& on) {
             auto args = options;
             args.targets = on(targets);
             for (std::int64_t rank = 0; rank < ranks; ++rank) {
               args.first_column = static_cast<int>(rank * columns);
               cross_entropy_parts(on.stream, on(parts).rows(rank, 1).view({rows, 3}),
                                   on(all[static_cast<std::size_t>(rank)].logits), args);
             }
             args.parts = on(parts);
             for (std::int64_t rank = 0; rank < ranks; ++rank) {
               const auto& own = all[static_cast<std::size_t>(rank)];
               args.first_column = static_cast<int>(rank * columns);
               args.losses = on(own.plain);
               cross_entropy_loss(on.stream, on(own.logits), args);
               args.losses = on(own.losses);
               cross_entropy_gradient(on.stream, on(own.logits), args);
             }
           };
           o.expect_on_cpu = [=](const Results& r) {
             Doubles whole(static_cast<std::size_t>(rows * ranks * columns));
             const auto at = [&](std::int64_t rank, std::size_t i) {
               const auto row = static_cast<std::int64_t>(i) / columns;
               return static_cast<std::size_t>((row * ranks + rank) * columns) +
                      i % static_cast<std::size_t>(columns);
             };
             for (std::int64_t rank = 0; rank < ranks; ++rank) {
               const auto own = r[all[static_cast<std::size_t>(rank)].logits];
               for (std::size_t i = 0; i < own.size(); ++i)
                 whole[at(rank, i)] = own[i];
             }
             auto setting = setting_of(options, ranks * columns);
             const auto losses = reference::cross_entropy(whole, classes, setting);
             const auto gradient = reference::cross_entropy_gradient(whole, classes, setting);
             setting.z_loss = 0;
             const auto plain = reference::cross_entropy(whole, classes, setting);
             r.checked(parts);  // by the results that depend on them
             for (std::int64_t rank = 0; rank < ranks; ++rank) {
               const auto& own = all[static_cast<std::size_t>(rank)];
               r.close(own.plain, plain);
               r.close(own.losses, losses);
               Doubles expected(static_cast<std::size_t>(rows * columns));
               for (std::size_t i = 0; i < expected.size(); ++i)
                 expected[i] = gradient[at(rank, i)];
               r.close(own.logits, expected);
             }
           };
           o.expect_anywhere = [=](const Results& r) {
             for (const auto& rank : all)
               expect_bitwise_equal(r.tensor(rank.losses), r.tensor(all[0].losses),
                                    "losses of ranks");
           };
         }});

const bool kSum = register_operator(
    {.name = "SumLosses",
     .draw_sizes = [](Draw& d) -> Sizes {
       return {d.coin() ? d.between(0, 3)
                        : d.size(most({.cpu = 5000, .simulated = 5000, .real = 200000}))};
     },
     .make =
         [](Operator& o) {
           const auto losses = o.in({o.size[0]}, 10);
           const auto classes = draw_targets(o, o.size[0], 50000);
           const auto targets = o.integers(classes, {o.size[0]});
           const auto sum = o.adds("sum", {1}, DType::fp32, {.drawn_scale = 10, .gpu_scale = 10});
           const auto count = o.changes("count", o.b.integers({5}), kExact);
           o.call = [=](const On& on) {
             sum_losses(on.stream, on(sum), on(count), on(losses), on(targets));
           };
           o.expect_on_cpu = [=](const Results& r) {
             const auto all = r[losses];
             double expected = 0, valid = 5;
             for (std::size_t n = 0; n < all.size(); ++n)
               if (classes[n] >= 0) {
                 expected += all[n];
                 ++valid;
               }
             r.close(sum, {expected});
             r.close(count, {valid});
           };
         }});

// Row computes the losses and the gradient of a row of 40 logits, which are in [-1, 1] except the
// bad ones. With `of_other`, another rank with 40 more logits has the bad ones.
struct Row {
  Row(Operator& o, std::int32_t target, const std::vector<std::pair<std::int64_t, double>>& bad,
      bool of_other, const Bound& bound) {
    const auto own = o.random({1, 40}, o.dtype), others = o.random({1, 40}, o.dtype);
    for (const auto& [at, value] : bad)
      Bench::set(of_other ? others : own, at, value);
    logits = o.changes("gradient", own, bound);
    // Not poisoned, because poison is NaN.
    losses = o.changes("loss", o.random({1}, DType::fp32), bound);
    plain = o.changes("loss of evaluation", o.random({1}, DType::fp32), bound);
    const auto targets = o.integers(std::vector<std::int32_t>{target});
    const auto other = of_other ? o.input(others) : Operand{};
    const auto parts = o.out("parts", {2, 1, 3}, DType::fp32, {.is_compared = false});
    o.call = [=, *this](const On& on) {
      CrossEntropy args{
          .losses = on(plain), .targets = on(targets), .vocabulary = of_other ? 80 : 37};
      if (of_other) {
        cross_entropy_parts(on.stream, on(parts).rows(0, 1).view({1, 3}), on(logits), args);
        args.first_column = 40;
        cross_entropy_parts(on.stream, on(parts).rows(1, 1).view({1, 3}), on(other), args);
        args.first_column = 0;
        args.parts = on(parts);
      }
      cross_entropy_loss(on.stream, on(logits), args);
      args.losses = on(losses);
      cross_entropy_gradient(on.stream, on(logits), args);
    };
  }
  Operand logits, losses, plain;
};

// A NaN that became a small number would hide a broken step. This also holds for a NaN of another
// rank, because all ranks must skip the step. But -infinity is an impossible token, even if a rank
// has no other tokens.
const double kInfinity = std::numeric_limits<double>::infinity();
const std::vector<Sizes> kBad{{0, 0, 0}, {17, 0, 0}, {36, 0, 0}, {0, 1, 0}, {17, 1, 0}, {36, 1, 0},
                              {0, 0, 1}, {17, 0, 1}, {36, 0, 1}, {0, 1, 1}, {17, 1, 1}, {36, 1, 1}};
const bool kNotFinite = register_for_types(
    {.name = "LogitsThatAreNotFinite", .fixed = kBad, .on_gpu = kBad, .make = [](Operator& o) {
       const double bad = o.size[1] == 0 ? std::nan("") : kInfinity;
       const Row row(o, 5, {{o.size[0], bad}}, o.size[2] == 1, {.is_compared = false});
       o.expect_anywhere = [=](const Results& r) {
         EXPECT_TRUE(std::isnan(r.after(row.plain)[0]));
         EXPECT_TRUE(std::isnan(r.after(row.losses)[0]));
         EXPECT_TRUE(std::isnan(r.after(row.logits)[3]));
       };
     }});
const bool kImpossible = register_for_types(
    {.name = "LogitsOfTokensThatCannotCome",
     .fixed = {{0}},
     .on_gpu = {{0}},
     .make = [](Operator& o) {
       std::vector<std::pair<std::int64_t, double>> all;
       for (std::int64_t v = 0; v < 40; ++v)
         all.emplace_back(v, -kInfinity);
       const Row row(o, 5, all, true, {.fixed_scale = 1, .gpu_scale = 1});
       o.expect_on_cpu = [=](const Results& r) {
         for (const auto loss : {row.losses, row.plain})
           r.close(loss, reference::cross_entropy(r[row.logits], {5}, {40, 40}));
         r.close(row.logits, reference::cross_entropy_gradient(r[row.logits], {5}, {40, 40}));
       };
     }});

const bool kLarge = register_for_types(
    {.name = "LargeLogits", .fixed = {{0}}, .on_gpu = {{0}}, .make = [](Operator& o) {
       const Row row(o, 21, {{20, 60000}, {21, -60000}}, false, {.same_bits = true});
       o.expect_anywhere = [=](const Results& r) {
         const auto before = r[row.logits], gradient = r.after(row.logits);
         for (const auto loss : {row.losses, row.plain}) {
           expect_close(r.tensor(loss), {before[20] - before[21]}, 1e-6, "loss");
           r.checked(loss);
         }
         EXPECT_EQ(gradient[20], 1);
         EXPECT_EQ(gradient[21], -1);
         EXPECT_EQ(gradient[3], 0);
         r.checked(row.logits);
       };
     }});

// The call changes only some rows of larger tensors.
const bool kRows = register_for_types(
    {.name = "CrossEntropyOfSomeRows", .fixed = {{0}}, .on_gpu = {{0}}, .make = [](Operator& o) {
       const auto logits =
           o.changes("gradient", o.random({4, 33}, o.dtype, 4), {.fixed_scale = 1, .gpu_scale = 1});
       const auto losses = o.out("losses", {4}, DType::fp32, {.is_compared = false});
       const auto targets = o.integers(std::vector<std::int32_t>{0, 32, -1, 7});
       o.call = [=](const On& on) {
         cross_entropy_gradient(on.stream, on(logits).rows(1, 2),
                                {.losses = on(losses).rows(1, 2),
                                 .targets = on(targets).rows(1, 2),
                                 .vocabulary = 33});
       };
       o.expect_on_cpu = [=](const Results& r) {
         auto expected = r[logits];
         const auto gradient =
             reference::cross_entropy_gradient(expected, {-1, 32, -1, -1}, {33, 33});
         std::copy_n(gradient.begin() + 33, 66, expected.begin() + 33);
         r.close(logits, expected);
       };
       o.expect_anywhere = [=](const Results& r) {
         const auto all = r.after(losses);
         EXPECT_TRUE(std::isnan(all[0]) && !std::isnan(all[1]) && std::isnan(all[3]));
         EXPECT_EQ(all[2], 0);
         for (const int row : {0, 3})
           expect_bitwise_equal(r.tensor(logits).rows(row, 1), r.before(logits).rows(row, 1),
                                "another row");
       };
     }});

}  // namespace lockstep::testing::cross_entropy_cases
