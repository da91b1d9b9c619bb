#include "launch/plan/run_costs.h"

#include <cctype>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <sstream>

#include "tests/launch/plan/cluster_rig.h"
#include "tests/model/published.h"
#include "train/run/memory_budget.h"

namespace lockstep::testing::run_costs_test {

// Expression computes a text of + - * / ( ) sqrt exp expm1 max, numbers and names of inputs.
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
    if (word == "sqrt" || word == "exp" || word == "expm1" || word == "max") {
      EXPECT_TRUE(take('('));
      double value = sum();
      if (word == "sqrt") value = std::sqrt(value);
      if (word == "exp") value = std::exp(value);
      if (word == "expm1") value = std::expm1(value);
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

TEST(RunCosts, each_explained_formula_gives_its_stated_value) {
  std::set<std::string> names;
  // Kinds: 0 has rare saves, 1 fp8, 2 steps that wait for data, 3 no memory for copies, 4 partner
  // copies.
  for (const int kind : {0, 1, 2, 3, 4}) {
    Config config = small_run(kind == 4 ? 16 : 8);
    config.precision.compute = DType::bf16;
    if (kind == 1) config.precision.fp8 = Fp8Matmuls::tensor;
    config.checkpoint.every_steps = kind == 0 ? 1'000'000 : 7;
    if (kind != 0) config.checkpoint.local_directory = "/dev/shm/local";
    if (kind == 1) config.checkpoint.every_seconds = 30;
    config.checkpoint.partner_copies = kind == 4;
    auto cluster = costly();
    if (kind == 4) cluster.nodes = 2;
    if (kind == 2) cluster.storage_read_bytes_per_second = 1e4;
    if (kind == 3) cluster.host_memory_bytes = 1 << 20;
    const auto found = estimate(config, cluster);
    EXPECT_EQ(found.save.copies, kind != 3);
    EXPECT_EQ(found.time[Component::data] > 0, kind == 2);
    for (const auto& formula : explain(config, cluster, found)) {
      names.insert(formula.name);
      Expression expression(formula.text, formula.inputs);
      EXPECT_NEAR(expression.value(), formula.value, 1e-9 * std::abs(formula.value))
          << formula.name << " = " << formula.text;
    }
  }
  std::istringstream expected(
      "parameters flops_per_token flops_per_token_square data step_seconds "
      "step_without_checkpoints "
      "hidden_seconds interval_seconds mfu device_bytes checkpoint_bytes save_copy_seconds "
      "save_write_seconds save_stall_seconds write_bytes_per_second interruption_seconds "
      "best_interval_seconds goodput best_goodput run_seconds wall_seconds cache_bytes_per_token "
      "energy_joules price local_bytes local_kept_bytes local_save_seconds local_interval_seconds "
      "local_stall_seconds local_network_share local_lost_seconds");
  for (std::string name; expected >> name;)
    EXPECT_TRUE(names.contains(name)) << name;
}

// 64 GPUs. A save stalls steps for C = 2 s and is written in W = 60 s; a restart takes R = 300 s.
// The mean time M between interruptions is far longer, so that to first order:
// - goodput is 1 - C / T - (T / 2 + W + R) / M for an interval T;
// - the best interval is sqrt(2 C M) - C.
TEST(RunCosts, costs_of_checkpoints_equal_those_computed_by_hand) {
  Config config = small_run(1);
  config.train.steps = 100'000;
  Cluster cluster = h100s(8);
  cluster.restart_seconds = 300;
  Estimate estimate;
  estimate.ranks = 64;
  estimate.time[Component::products] = 1.5;
  estimate.save = {.bytes = 112'000'000'000,
                   .write_seconds = 60,
                   .interval_steps = 1000,
                   .interval_seconds = 1500,
                   .update_stall_seconds = 2};
  const auto costs = run_costs(config, cluster, estimate);
  EXPECT_NEAR(costs.interruption_seconds, 2'851'875, 1);  // 50,700 h x 3600 / 64
  EXPECT_NEAR(costs.best_interval_seconds, 3376.2, 0.1);  // sqrt(11407500) (1 + 0.0002) - 2
  EXPECT_EQ(costs.best_interval_steps, 2251);             // of 1.5 s, rounded up
  EXPECT_NEAR(costs.goodput, 1 - 2 / 1500.0 - 1110 / 2'851'875.0, 3e-6);
  EXPECT_NEAR(costs.best_goodput, 1 - 2 / 3376.2 - (1688.1 + 360) / 2'851'875, 3e-6);
  EXPECT_NEAR(costs.write_bytes_per_second, 74'666'666.7, 0.1);
  EXPECT_DOUBLE_EQ(costs.run_seconds, 150'000);
  EXPECT_DOUBLE_EQ(costs.wall_seconds, 150'000 / costs.goodput + 60 - 2);  // S - C
}

// 8 hosts of 8 GPUs. A host has 14 GB of a checkpoint of 112 GB. A rank hashes and writes its 1.75
// GB at 1 GB/s, and 14 GB go to the partner at 1 GB/s, through NICs of 8 x 50 GB/s.
TEST(RunCosts, local_checkpoints_equal_those_computed_by_hand) {
  Config config = small_run(1);
  Cluster cluster = h100s(8);
  cluster.restart_seconds = 20;
  cluster.hardware.nic_bytes_per_second = 50e9;
  Estimate estimate;
  estimate.ranks = 64;
  estimate.room.ranks = 8;
  estimate.time[Component::products] = 1.5;
  estimate.save = {.bytes = 112'000'000'000,
                   .nodes = 8,
                   .copy_seconds = 0.25,
                   .interval_steps = 1000,
                   .interval_seconds = 1500};
  EXPECT_EQ(run_costs(config, cluster, estimate).local.bytes, 0);
  config.checkpoint.local_directory = "/dev/shm/local";
  auto local = run_costs(config, cluster, estimate).local;
  EXPECT_EQ(local.bytes, 14'000'000'000);
  EXPECT_EQ(local.kept_bytes, 28'000'000'000);
  EXPECT_DOUBLE_EQ(local.save_seconds, 2);
  EXPECT_DOUBLE_EQ(local.interval_seconds, 1500);
  EXPECT_DOUBLE_EQ(local.network_share, 0);
  config.checkpoint.partner_copies = true;
  config.checkpoint.every_seconds = 31;
  local = run_costs(config, cluster, estimate).local;
  EXPECT_EQ(local.kept_bytes, 56'000'000'000);
  EXPECT_DOUBLE_EQ(local.save_seconds, 16);
  EXPECT_DOUBLE_EQ(local.interval_seconds, 31.5);  // whole steps
  EXPECT_DOUBLE_EQ(local.network_share, 14e9 / 31.5 / 400e9);
  EXPECT_DOUBLE_EQ(local.lost_seconds, 31.5 / 2 + 16 + 20);
  config.checkpoint.every_seconds = 1;  // saves follow one another
  EXPECT_DOUBLE_EQ(run_costs(config, cluster, estimate).local.interval_seconds, 16.5);
}

// Simulates many starts of a run, each interrupted after a random time. A start needs R seconds,
// then alternates `interval` seconds of steps and a save. A save stalls steps for C seconds and is
// complete S seconds after its begin.
double simulated_goodput(double interval, double C, double S, double R, double M) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> until(1 / M);
  double done = 0, passed = 0;
  for (int start = 0; start < 300'000; ++start) {
    const double seconds = until(random);
    passed += seconds;
    done += interval * std::max(std::floor((seconds - R - S + C) / (interval + C)), 0.0);
  }
  return done / passed;
}

// The run of local_checkpoints_equal_those_computed_by_hand, with M = 10 hours. To first order, an
// interruption loses half an interval, a save and a restart: with partner copies of the local
// interval, otherwise of the run's.
TEST(RunCosts, with_partner_copies_an_interruption_loses_a_local_interval) {
  Config config = small_run(1);
  Cluster cluster = h100s(8);
  cluster.restart_seconds = 20;
  cluster.hardware.nic_bytes_per_second = 50e9;
  cluster.gpu_hours_per_interruption = 640;
  Estimate estimate;
  estimate.ranks = 64;
  estimate.room.ranks = 8;
  estimate.time[Component::products] = 1.5;
  estimate.save = {.bytes = 112'000'000'000,
                   .copies = true,
                   .nodes = 8,
                   .copy_seconds = 0.25,
                   .write_seconds = 60,
                   .hidden_seconds = 1.4,
                   .interval_steps = 1000,
                   .interval_seconds = 1500};
  config.checkpoint.every_seconds = 31;
  const double M = 36'000, of_run = 1 - (750 + 60.25 + 20) / M, of_partner = 1 - 51.75 / M;
  EXPECT_NEAR(run_costs(config, cluster, estimate).goodput, of_run, 5e-4);
  config.checkpoint.local_directory = "/dev/shm/local";  // lost with its host
  EXPECT_NEAR(run_costs(config, cluster, estimate).goodput, of_run, 5e-4);
  config.checkpoint.partner_copies = true;
  const auto costs = run_costs(config, cluster, estimate);
  EXPECT_NEAR(costs.goodput, of_partner, 5e-6);
  EXPECT_NEAR(costs.goodput, simulated_goodput(31.5, 0, 16, 20, M), 2e-4);
  EXPECT_DOUBLE_EQ(costs.wall_seconds, costs.run_seconds / costs.goodput + 60.25);
  // Updates wait 0.1 s for the copy of each save, and a save in the run's directory 500 s.
  estimate.save.copy_seconds = 1.5;
  estimate.save.write_seconds = 2000;
  estimate.save.next_stall_seconds = 500;
  const double stall = 0.1 + 500 * 33.0 / 1500;  // a local save takes 17.25 s
  config.checkpoint.every_seconds = 32;
  const auto slow = run_costs(config, cluster, estimate);
  EXPECT_NEAR(slow.local.stall_seconds, stall, 1e-9);
  EXPECT_NEAR(slow.goodput, simulated_goodput(33, stall, 17.25, 20, M), 5e-4);
  // A single host has no partner.
  estimate.save.nodes = 1;
  EXPECT_LT(run_costs(config, cluster, estimate).goodput, slow.goodput);
}

// Interruptions range from very rare ones to one between most saves.
TEST(RunCosts, goodput_equals_that_of_a_simulation) {
  for (const auto& [interval, C, W, hours] : {std::tuple{1500.0, 2.0, 60.0, 50'700.0},
                                              {1500.0, 2.0, 60.0, 100.0},
                                              {24.0, 24.0, 20.0, 50'700.0},
                                              {2000.0, 300.0, 600.0, 10.0},
                                              {2000.0, 3000.0, 3000.0, 10.0},  // without a copy
                                              {9000.0, 5.0, 5.0, 10.0}}) {
    SCOPED_TRACE(str("interval ", interval, ", C ", C, ", W ", W, ", hours ", hours));
    Cluster cluster = h100s(1);
    cluster.gpu_hours_per_interruption = 8 * hours;
    Estimate estimate;
    estimate.ranks = 8;
    estimate.time[Component::products] = 1;
    estimate.save = {.bytes = 1,
                     .write_seconds = W,
                     .interval_steps = 1,
                     .interval_seconds = interval,
                     .update_stall_seconds = C};
    const auto costs = run_costs(small_run(8), cluster, estimate);
    const double found =
        simulated_goodput(interval, C, W, cluster.restart_seconds, costs.interruption_seconds);
    EXPECT_NEAR(costs.goodput, found, 0.01 * found + 0.002);
  }
}

TEST(RunCosts, a_run_without_interruptions_loses_only_the_cost_of_saves) {
  Cluster cluster = h100s(1);
  cluster.gpu_hours_per_interruption = 1e15;
  Estimate estimate;
  estimate.ranks = 8;
  estimate.time[Component::products] = 1;
  estimate.save = {
      .bytes = 1, .interval_steps = 9, .interval_seconds = 9, .update_stall_seconds = 1};
  EXPECT_NEAR(run_costs(small_run(8), cluster, estimate).goodput, 0.9, 1e-9);
}

// A save is written in 3 s, or takes longer than the mean time between interruptions.
TEST(RunCosts, the_best_interval_has_the_best_goodput_and_ignores_the_configured_one) {
  for (const auto& [write, host_bytes] :
       {std::pair{3.0, 1}, {7e5, 1}, {3.0, 1 << 20}, {7e5, 1 << 20}}) {  // 1: no memory for copies
    SCOPED_TRACE(str("written in ", write, " s, hosts of ", host_bytes, " bytes"));
    Config config = small_run(1024);
    Cluster cluster = h100s(128);
    cluster.host_memory_bytes = host_bytes;
    const auto bytes = static_cast<double>(estimate(config, cluster).save.bytes);
    cluster.storage_write_bytes_per_second = bytes / 128 / write;
    const auto with_every = [&](std::int64_t steps) {
      config.checkpoint.every_steps = steps;
      config.train.steps = std::int64_t{1} << 40;
      return run_costs(config, cluster, estimate(config, cluster));
    };
    const auto best = with_every(1000);
    EXPECT_EQ(estimate(config, cluster).save.copies, host_bytes > 1);
    EXPECT_GT(best.best_interval_steps, 1);
    for (const double factor : {0.5, 0.8, 1.0, 1.25, 2.0}) {
      const auto steps =
          static_cast<std::int64_t>(factor * static_cast<double>(best.best_interval_steps));
      const auto other = with_every(std::max<std::int64_t>(steps, 1));
      EXPECT_EQ(other.best_interval_steps, best.best_interval_steps) << factor;
      EXPECT_LE(other.goodput, best.best_goodput * (1 + 1e-6)) << factor;
    }
  }
}

// A run with fewer steps than the interval saves at its end, and ends when that is written.
TEST(RunCosts, a_run_ends_with_a_checkpoint_even_if_saves_are_rarer_than_the_run_is_long) {
  for (const std::int64_t every : {0, 1'000'000}) {
    Config config = small_run(8);
    config.train.steps = 200;
    config.checkpoint.every_steps = every;
    const auto found = estimate(config, costly());
    EXPECT_EQ(found.save.interval_steps, 200);
    const auto costs = run_costs(config, costly(), found);
    EXPECT_GT(costs.goodput, 0);
    EXPECT_DOUBLE_EQ(costs.last_save_seconds, found.save.copy_seconds + found.save.write_seconds -
                                                  found.save.stall_seconds());
    EXPECT_GT(costs.last_save_seconds, 0.1);
    EXPECT_DOUBLE_EQ(costs.wall_seconds,
                     200 * costs.step_seconds / costs.goodput + costs.last_save_seconds);
    EXPECT_DOUBLE_EQ(costs.price, 3 * 8 * costs.wall_seconds / 3600);
  }
}

TEST(RunCosts, parameters_and_flops_equal_published_numbers) {
  Config config = small_run(1);
  const auto m = config.model = llama3_8b();
  EXPECT_EQ(parameter_count(m), 8'030'261'248);
  EXPECT_NEAR(flops_per_token(m, 8192).square, 57.9e9, 0.05e9);
  EXPECT_NEAR(flops_per_token(m, 8192).causal, 51.5e9, 0.05e9);
  Estimate estimate;
  estimate.time[Component::products] = 1;
  EXPECT_EQ(run_costs(config, h100s(1), estimate).cache_bytes_per_token, 2 * 32 * 8 * 128 * 4);
}

}  // namespace lockstep::testing::run_costs_test
