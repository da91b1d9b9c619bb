#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include "tests/kernels/adamw_modes.h"
#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference.h"

namespace lockstep::testing::adamw_test {

// A parameter of n elements with its optimizer state. Its scalars apply an update unscaled.
struct Parameter {
  Parameter(Bench& b, const AdamWMode& mode, std::int64_t n, std::int64_t first_index = 0)
      : grad(b.random({n}, DType::fp32)),
        learning_rate(b.random({1}, DType::fp32)),
        step(b.integers({0})) {
    run.weight = b.random({n}, mode.weight);
    if (mode.master) run.master = b.random({n}, DType::fp32);
    for (std::int64_t i = 0; i < n && mode.master; ++i)
      Bench::set(run.master, i, get(run.weight, i));
    run.m = b.random({n}, mode.moments, 0);
    run.v = b.random({n}, mode.moments, 0);
    run.grad = grad;
    run.purpose = purpose_of("weight");
    run.first_index = first_index;
    scalars = {learning_rate, step, b.integers({0}), b.random({5}, DType::fp32)};
    set_control({1, 1, 1, 1, 0}, 1e-3);
  }

  void set_control(const std::vector<double>& control, double rate) const {
    for (std::size_t i = 0; i < control.size(); ++i)
      Bench::set(scalars.control, static_cast<std::int64_t>(i), control[i]);
    Bench::set(learning_rate, 0, rate);
  }

  Tensor grad, learning_rate, step;
  AdamWRun run;
  AdamWScalars scalars;
};

class AdamWModes : public ::testing::TestWithParam<AdamWMode> {};

// Compares with float64 AdamW on the same gradients. In fp32 the difference is the rounding of 20
// steps. With bf16 weights or moments the mean over elements must follow, because stochastic
// rounding has no drift; one element may differ by a few roundings of 2^-8.
TEST_P(AdamWModes, twenty_steps_follow_the_reference) {
  for (const std::int64_t n : {1, 64, 1000, 20011}) {
    Bench b;
    const Parameter p(b, GetParam(), n, 3);
    const AdamWConfig config{.weight_decay = 0.3f};
    const double rate = 0.01;
    const auto squares = b.random({1}, DType::fp32), valid = b.integers({50});
    reference::AdamW expected{doubles(p.run.weight), Doubles(static_cast<std::size_t>(n)),
                              Doubles(static_cast<std::size_t>(n))};
    AdamWConfig with_tokens = config;
    with_tokens.nominal_tokens = 100;
    for (int step = 0; step < 20; ++step) {
      const auto grad = b.random({n}, DType::fp32, 0.02f);
      std::copy(grad.data, grad.data + grad.bytes(), p.grad.data);
      p.step.as<std::int32_t>()[0] = step;
      Bench::set(squares, 0, reference::squares(doubles(p.grad)));
      adamw_control(b.stream, p.scalars, {squares, squares, valid}, with_tokens);
      Bench::set(p.learning_rate, 0, rate);
      adamw_update(b.stream, {&p.run, 1}, p.scalars, with_tokens);
      expected.step(doubles(p.grad), {.rate = rate, .decay = 0.3, .scale = 2});
    }
    EXPECT_EQ(get(p.scalars.updates, 0), 20);
    const bool exact = GetParam().moments == DType::fp32 &&
                       (GetParam().master || GetParam().weight == DType::fp32);
    const auto& weight = GetParam().master ? p.run.master : p.run.weight;
    if (exact) {
      expect_close(weight, expected.w, 4e-6, "weight");
      expect_close(p.run.m, expected.m, 4e-6, "m");
      expect_close(p.run.v, expected.v, 4e-6, "v");
    } else {
      expect_close(weight, expected.w, 0.05, "weight");
      if (n > 10000) {
        EXPECT_LT(std::abs(reference::mean_difference(doubles(weight), expected.w)), 1e-4);
        EXPECT_LT(std::abs(reference::mean_difference(doubles(p.run.v), expected.v)), 1e-6);
      }
    }
    if (!GetParam().master) continue;
    for (std::int64_t i = 0; i < n; ++i) {
      const float master = p.run.master.as<float>()[i];
      ASSERT_EQ(get(p.run.weight, i),
                GetParam().weight == DType::bf16 ? to_float(to_bf16(master)) : master);
    }
  }
}

constexpr std::uint64_t kSeed = 42;

// Rounds the fp32 result of one update by the formula of kernels/adamw.h.
float rounded(float x, const AdamWRun& run, std::uint64_t t, std::int64_t step, std::int64_t i) {
  const auto e = static_cast<std::uint64_t>(run.first_index + i);
  const auto counter = t << 62 | static_cast<std::uint64_t>(step + 1) << 32 | e / 8;
  const auto word = philox(kSeed, run.purpose, counter)[e % 8 / 2];
  const auto bits = (word >> (e % 2 * 16)) & 0xffffu;
  const auto u = std::bit_cast<std::uint32_t>(x) + bits;
  return std::bit_cast<float>(u & 0xffff0000u);
}

void check_rounding(Bench& b, std::int64_t n, std::int64_t first, std::int64_t step) {
  const Parameter p(b, {"", DType::bf16, false, DType::bf16}, n, first);
  Parameter q(b, {"", DType::fp32, false, DType::fp32}, n, first);
  p.step.as<std::int32_t>()[0] = static_cast<std::int32_t>(step);
  const auto m = b.random({n}, DType::bf16), v = b.random({n}, DType::bf16);
  for (std::int64_t i = 0; i < n; ++i) {
    Bench::set(p.run.m, i, get(m, i));
    Bench::set(p.run.v, i, std::abs(get(v, i)));
    Bench::set(q.run.weight, i, get(p.run.weight, i));
    Bench::set(q.run.m, i, get(p.run.m, i));
    Bench::set(q.run.v, i, get(p.run.v, i));
    Bench::set(q.grad, i, get(p.grad, i));
  }
  adamw_update(b.stream, {&p.run, 1}, p.scalars, {.seed = kSeed});
  adamw_update(b.stream, {&q.run, 1}, q.scalars, {.seed = kSeed});
  for (std::int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(get(p.run.weight, i), rounded(q.run.weight.as<float>()[i], p.run, 0, step, i)) << i;
    ASSERT_EQ(get(p.run.m, i), rounded(q.run.m.as<float>()[i], p.run, 1, step, i)) << i;
    ASSERT_EQ(get(p.run.v, i), rounded(q.run.v.as<float>()[i], p.run, 2, step, i)) << i;
  }
}

TEST(AdamWUpdate, rounds_with_the_random_bits_of_seed_purpose_step_and_index) {
  for (const std::int64_t first :
       {std::int64_t{0}, std::int64_t{7}, std::int64_t{61}, (std::int64_t{1} << 35) - 500}) {
    Bench b;
    check_rounding(b, 500, first, 77);
  }
}

// Checks one step that rounds, then a few steps in fp32 with or without master weights.
void check_random(Draw& draw) {
  const auto n = draw.size(20000), first = draw.size(1000), valid = draw.between(1, 200);
  SCOPED_TRACE(str("n ", n, " first ", first));
  auto b = draw.bench();
  check_rounding(b, n, first, draw.size(100000));

  const Parameter p(b, kAdamWModes[draw.between(0, 1)], n, first);
  const AdamWConfig config{.beta1 = draw.coin() ? 0.9f : 0.8f,
                           .beta2 = draw.coin() ? 0.95f : 0.99f,
                           .weight_decay = draw.coin() ? 0.3f : 0.0f,
                           .nominal_tokens = 100};
  const double scale = 100.0 / static_cast<double>(valid), rate = draw.coin() ? 0.01 : 1e-4;
  const float largest = draw.coin() ? 1.0f : 1e-3f;  // norms above and below the clip
  const auto squares = b.random({1}, DType::fp32);
  const auto tokens = b.integers({static_cast<std::int32_t>(valid)});
  const auto zeros = Doubles(static_cast<std::size_t>(n));
  reference::AdamW expected{doubles(p.run.weight), zeros, zeros};
  for (int step = 0; step < 5; ++step) {
    const auto grad = b.random({n}, DType::fp32, largest);
    std::copy(grad.data, grad.data + grad.bytes(), p.grad.data);
    Bench::set(squares, 0, reference::squares(doubles(grad)));
    adamw_control(b.stream, p.scalars, {squares, squares, tokens}, config);
    Bench::set(p.learning_rate, 0, rate);
    adamw_update(b.stream, {&p.run, 1}, p.scalars, config);
    expected.step(doubles(grad), {.rate = rate,
                                  .decay = static_cast<double>(config.weight_decay),
                                  .scale = scale,
                                  .beta1 = static_cast<double>(config.beta1),
                                  .beta2 = static_cast<double>(config.beta2)});
  }
  // If the gradients of an element have opposite signs, its moments nearly cancel. Gradients are
  // clipped to at most 1.
  const double gradient = std::min(1.0, static_cast<double>(largest) * scale);
  expect_close(p.run.master ? p.run.master : p.run.weight, expected.w, 4e-6, "weight", 1);
  expect_close(p.run.m, expected.m, 4e-6, "m", gradient);
  expect_close(p.run.v, expected.v, 4e-6, "v");
}
TEST(AdamWUpdate, random_sizes_equal_the_reference) {
  few_draws(check_random);
}
TEST(AdamWUpdate, full_random_sizes_equal_the_reference) {
  many_draws(check_random);
}

// With gradient 0 a step only applies the decay. The mean over many elements and draws is the
// unrounded weight within 5 standard errors of the rounding.
TEST(AdamWUpdate, stochastic_rounding_moves_the_mean_by_the_update) {
  Bench b;
  constexpr std::int64_t kSize = 1 << 16;
  const Parameter p(b, {"", DType::bf16, false, DType::fp32}, kSize);
  for (std::int64_t i = 0; i < kSize; ++i) {
    Bench::set(p.run.weight, i, 1.5);
    Bench::set(p.grad, i, 0);
  }
  for (int step = 0; step < 10; ++step) {
    p.step.as<std::int32_t>()[0] = step;
    adamw_update(b.stream, {&p.run, 1}, p.scalars, {});
  }
  double mean = 0;
  for (std::int64_t i = 0; i < kSize; ++i)
    mean += get(p.run.weight, i) / kSize;
  const double expected = 1.5 * std::pow(1 - 1e-3 * 0.1, 10);  // 0.0015 less; bf16 steps by 0.0078
  EXPECT_NEAR(mean, expected, 5 * 0.0078 * 0.5 * std::sqrt(10.0 / kSize));
  EXPECT_LT(mean, 1.4999);
}

TEST(AdamWUpdate, a_run_without_decay_ignores_weight_decay) {
  Bench b;
  Parameter p(b, kAdamWModes[0], 100);
  p.run.decay = false;
  const auto start = doubles(p.run.weight);
  reference::AdamW expected{start, Doubles(100), Doubles(100)};
  p.set_control({1, 10, 20, 1, 0}, 0.01);  // the corrections of the first update
  adamw_update(b.stream, {&p.run, 1}, p.scalars, {.weight_decay = 5});
  expected.step(doubles(p.grad), {.rate = 0.01, .decay = 0, .scale = 1});
  expect_close(p.run.weight, expected.w, 4e-6, "weight");
}

struct Control {
  double scale, correction1, correction2, applied, norm, updates;
  Doubles absmax;  // 5 and 7 before
};
Control control(double squares, std::int32_t valid, const AdamWConfig& config,
                double loss_sum = 40) {
  Bench b;
  Parameter p(b, kAdamWModes[0], 1);
  p.scalars.absmax = b.random({2}, DType::fp32);
  Bench::set(p.scalars.absmax, 0, 5);
  Bench::set(p.scalars.absmax, 1, 7);
  p.scalars.updates.as<std::int32_t>()[0] = 3;
  const auto s = b.random({1}, DType::fp32), loss = b.random({1}, DType::fp32);
  Bench::set(s, 0, squares);
  Bench::set(loss, 0, loss_sum);
  for (int i = 0; i < 5; ++i)
    Bench::set(p.scalars.control, i, std::nan(""));
  adamw_control(b.stream, p.scalars, {s, loss, b.integers({valid})}, config);
  const auto c = doubles(p.scalars.control);
  return {c[0], c[1], c[2], c[3], c[4], get(p.scalars.updates, 0), doubles(p.scalars.absmax)};
}

TEST(AdamWControl, scales_by_nominal_over_valid_tokens_and_clips_the_norm) {
  const auto below = control(0.04, 50, {.nominal_tokens = 100});  // norm 2 * 0.2
  EXPECT_NEAR(below.scale, 2, 1e-6);
  EXPECT_NEAR(below.norm, 0.4, 1e-6);
  EXPECT_EQ(below.applied, 1);
  EXPECT_EQ(below.updates, 4);
  EXPECT_NEAR(below.correction1, 1 / (1 - std::pow(0.9, 4)), 1e-5);
  EXPECT_NEAR(below.correction2, 1 / (1 - std::pow(0.95, 4)), 1e-5);
  const auto above = control(4, 50, {.nominal_tokens = 100});  // norm 4, clipped to 1
  EXPECT_NEAR(above.scale, 0.5, 1e-6);
  EXPECT_NEAR(above.norm, 4, 1e-6);
  EXPECT_NEAR(control(4, 50, {.clip_norm = 0, .nominal_tokens = 100}).scale, 2, 1e-6);
}

// If the update is skipped, the weights stay, and so does the absmax that quantizes them.
TEST(AdamWControl, clears_absmax_if_the_update_is_applied) {
  EXPECT_EQ(control(0.04, 50, {}).absmax, (Doubles{0, 0}));
  EXPECT_EQ(control(0.04, 0, {}).absmax, (Doubles{5, 7}));
  EXPECT_EQ(control(std::nan(""), 50, {}).absmax, (Doubles{5, 7}));
}

TEST(AdamWControl, skips_without_valid_tokens_or_with_a_norm_that_is_not_finite) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const auto& [squares, valid] :
       {std::pair{1.0, 0}, {0.0, 0}, {nan, 0}, {infinity, 5}, {nan, 5}}) {
    for (const float clip : {0.0f, 1.0f}) {
      const auto c = control(squares, valid, {.clip_norm = clip, .nominal_tokens = 10});
      EXPECT_EQ(c.applied, 0) << squares << ' ' << valid;
      EXPECT_EQ(c.updates, 3);
      EXPECT_EQ(c.scale, 0);
      EXPECT_EQ(std::isfinite(c.norm), valid == 0);
    }
  }
}

TEST(AdamWControl, skips_if_only_the_loss_is_not_finite) {
  for (const double loss : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    const auto c = control(4, 5, {.nominal_tokens = 10}, loss);
    EXPECT_EQ(c.applied, 0) << loss;
    EXPECT_EQ(c.updates, 3);
    EXPECT_EQ(c.scale, 0);
    EXPECT_NEAR(c.norm, 4, 1e-6);
  }
}

TEST(AdamWContract, wrong_arguments_are_refused_by_name) {
  Bench b;
  const Parameter p(b, kAdamWModes[0], 8);
  const auto refused = [&](const char* why, auto&& change) {
    AdamWRun run = p.run;
    change(run);
    expect_refused(why, [&] { adamw_update(b.stream, {&run, 1}, p.scalars, {}); });
  };
  adamw_update(b.stream, {&p.run, 1}, p.scalars, {});
  refused("expected at most 2^35", [](AdamWRun& r) { r.first_index = std::int64_t{1} << 35; });
  refused("columns 4+4 of rows of 3", [](AdamWRun& r) { r.columns = {4, 4, 3}; });
  refused("row 136 of 268435455 columns", [](AdamWRun& r) {
    r.columns = {4, 1, (1 << 28) - 1};
    r.first_index = 129;
  });
  refused("v is bf16, expected fp32", [&](AdamWRun& r) { r.v = b.random({8}, DType::bf16); });
  refused("grad 7", [&](AdamWRun& r) { r.grad = b.random({7}, DType::fp32); });
}

// AdamW without decay descends to the minimum of the sum of (w - target)^2.
TEST(AdamWContract, the_reference_descends_to_the_minimum) {
  reference::AdamW adam{{1.0, -2.0}, {0, 0}, {0, 0}};
  for (int i = 0; i < 2000; ++i)
    adam.step({2 * (adam.w[0] - 0.3), 2 * (adam.w[1] - 0.7)}, {.rate = 0.01, .decay = 0});
  EXPECT_NEAR(adam.w[0], 0.3, 1e-3);
  EXPECT_NEAR(adam.w[1], 0.7, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(modes, AdamWModes, ::testing::ValuesIn(kAdamWModes),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace lockstep::testing::adamw_test
