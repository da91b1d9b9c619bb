#include "train/plan/run_costs.h"

#include <cctype>
#include <cmath>
#include <gtest/gtest.h>
#include <set>

#include "tests/files.h"
#include "tests/testing.h"
#include "tests/train/plan/cluster_rig.h"

namespace lockstep::testing {
namespace {

// The value of an expression of + - * / ( ) sqrt max, numbers and names.
class Expression {
 public:
  Expression(const std::string& text, const std::vector<Formula::Input>& inputs)
      : text_(text), inputs_(inputs) {}
  double value() {
    const double found = sum();
    EXPECT_EQ(at_, text_.size()) << text_;
    return found;
  }

 private:
  char next() {
    while (at_ < text_.size() && text_[at_] == ' ')
      ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  double sum() {
    double value = product();
    for (;;) {
      if (take('+')) {
        value += product();
      } else if (take('-')) {
        value -= product();
      } else {
        return value;
      }
    }
  }
  double product() {
    double value = factor();
    for (;;) {
      if (take('*')) {
        value *= factor();
      } else if (take('/')) {
        value /= factor();
      } else {
        return value;
      }
    }
  }
  double factor() {
    if (take('(')) {
      const double value = sum();
      EXPECT_TRUE(take(')')) << text_;
      return value;
    }
    std::string word;
    next();
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  text_[at_] == '_' || text_[at_] == '.'))
      word += text_[at_++];
    if (word == "sqrt" || word == "max") {
      EXPECT_TRUE(take('('));
      double value = sum();
      if (word == "sqrt") value = std::sqrt(value);
      while (take(','))
        value = std::max(value, sum());
      EXPECT_TRUE(take(')'));
      return value;
    }
    for (const auto& input : inputs_)
      if (input.name == word) return input.value;
    EXPECT_TRUE(!word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) != 0)
        << "'" << word << "' in " << text_;
    return word.empty() ? 0 : std::stod(word);
  }

  const std::string& text_;
  const std::vector<Formula::Input>& inputs_;
  std::size_t at_ = 0;
};

Cluster costly() {
  Cluster cluster = h100s(1);
  cluster.storage_read_bytes_per_second = 1e9;
  cluster.storage_write_bytes_per_second = 2e6;
  cluster.watts = 1275;
  cluster.price_per_gpu_hour = 3;
  return cluster;
}

TEST(RunCosts, every_formula_has_the_value_that_its_inputs_give) {
  std::set<std::string> names;
  for (const bool is_fp8 : {false, true}) {  // and with saves that take longer than they may
    Config config = small_run(8);
    config.precision.compute = DType::bf16;
    if (is_fp8) config.precision.fp8 = Fp8Products::tensor;
    config.checkpoint.every_steps = is_fp8 ? 7 : 1'000'000;
    const auto cluster = costly();
    const auto found = estimate(config, cluster);
    for (const auto& formula : explain(config, cluster, found)) {
      names.insert(formula.name);
      Expression expression(formula.text, formula.inputs);
      EXPECT_NEAR(expression.value(), formula.value, 1e-9 * std::abs(formula.value))
          << formula.name << " = " << formula.text;
    }
  }
  for (const char* name : {"parameters",
                           "flops_per_token",
                           "flops_per_token_square",
                           "step_seconds",
                           "mfu",
                           "device_bytes",
                           "checkpoint_bytes",
                           "save_copy_seconds",
                           "save_write_seconds",
                           "save_stall_seconds",
                           "write_bytes_per_second",
                           "interruption_seconds",
                           "best_interval_seconds",
                           "goodput",
                           "best_goodput",
                           "run_seconds",
                           "wall_seconds",
                           "cache_bytes_per_token",
                           "energy_joules",
                           "price"})
    EXPECT_TRUE(names.contains(name)) << name;
}

// 64 GPUs, saves of 2 s that take 60 s to write, 300 s to start again, by hand.
TEST(RunCosts, checkpoints_by_hand) {
  Config config = small_run(1);
  config.train.steps = 100'000;
  config.checkpoint.every_steps = 1000;
  Cluster cluster = h100s(8);
  cluster.restart_seconds = 300;
  Estimate estimate;
  estimate.ranks = 64;
  estimate.time[Component::products] = 1.5;
  estimate.save = {.bytes = 112'000'000'000, .write_seconds = 60, .stall_seconds = 2};
  const auto costs = run_costs(config, cluster, estimate);
  EXPECT_NEAR(costs.interruption_seconds, 2'851'875, 1);  // 50,700 h x 3600 / 64
  EXPECT_NEAR(costs.best_interval_seconds, 3379.7, 0.1);  // 2 + sqrt(11408700 + 4)
  EXPECT_EQ(costs.best_interval_steps, 2254);             // of 1.5 s, rounded up
  EXPECT_NEAR(costs.goodput, 1 - 2 / 1500.0 - 1110 / 2'851'875.0, 1e-12);
  EXPECT_NEAR(costs.best_goodput, 1 - 2 / 3379.67 - (1689.83 + 360) / 2'851'875, 1e-7);
  EXPECT_NEAR(costs.write_bytes_per_second, 74'666'666.7, 0.1);
  EXPECT_DOUBLE_EQ(costs.run_seconds, 150'000);
  EXPECT_DOUBLE_EQ(costs.wall_seconds, 150'000 / costs.goodput);
}

TEST(RunCosts, the_best_interval_is_the_best) {
  Config config = small_run(1);
  Estimate estimate;
  estimate.ranks = 1024;
  estimate.time[Component::products] = 1;
  estimate.save = {.bytes = 1, .write_seconds = 1, .stall_seconds = 3};
  const Cluster cluster = h100s(128);
  const auto best = run_costs(config, cluster, estimate);
  for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
    config.checkpoint.every_steps =
        static_cast<std::int64_t>(factor * static_cast<double>(best.best_interval_steps));
    EXPECT_LT(run_costs(config, cluster, estimate).goodput, best.best_goodput) << factor;
  }
}

TEST(RunCosts, parameters_and_flops_are_those_that_papers_state) {
  Config config = small_run(1);
  auto& m = config.model;
  m.layers = 32;
  m.width = 4096;
  m.heads = 32;
  m.kv_heads = 8;
  m.head_size = 128;
  m.mlp_width = 14336;
  m.vocabulary = 128256;
  m.max_positions = 8192;
  EXPECT_EQ(parameter_count(m), 8'030'261'248);
  EXPECT_NEAR(flops_per_token(m, 8192).square, 57.9e9, 0.05e9);
  EXPECT_NEAR(flops_per_token(m, 8192).causal, 51.5e9, 0.05e9);
  EXPECT_EQ(run_costs(config, h100s(1),
                      [] {
                        Estimate estimate;
                        estimate.time[Component::products] = 1;
                        return estimate;
                      }())
                .cache_bytes_per_token,
            2 * 32 * 8 * 128 * 4);
}

}  // namespace
}  // namespace lockstep::testing
