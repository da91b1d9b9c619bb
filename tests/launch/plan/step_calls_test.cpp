#include "launch/plan/step_calls.h"

#include <gtest/gtest.h>
#include <numeric>

#include "launch/plan/cluster_step.h"
#include "launch/plan/cluster_topology.h"
#include "launch/plan/estimate.h"
#include "tests/launch/plan/cluster_rig.h"
#include "train/run/run_config.h"

namespace lockstep::testing::step_calls_test {

constexpr double kRounding = 1e-9;  // for sums in another order

struct Recorded {
  Config config;
  StepProgram program;
};

Recorded recorded(const Cluster& cluster, Config config) {
  config = planned_on(cluster, config);
  const auto training = training_config(config);
  const auto topology = placed_in(training.mesh, launched_on(cluster, training.mesh.world()));
  return {config, record_step(training, Device{cluster.device}, 1, 0, &topology)};
}

Config micro_batches(Config config, std::int64_t n) {
  config.train.batch_tokens =
      n * config.train.micro_batch * config.train.sequence_length * config.layout.ranks;
  return config;
}

double alone(const std::vector<StepCalls>& all, Component component) {
  for (const auto& calls : all)
    if (calls.component == component) return calls.seconds();
  return 0;
}

// One rank has one stream, so that nothing overlaps.
TEST(StepCalls, sum_to_the_components_of_a_step_without_overlap) {
  for (const Cluster& cluster : {h100s(1), processors(1)})
    for (const std::int64_t n : {1, 2, 3, 7}) {
      const auto [config, program] = recorded(cluster, micro_batches(small_run(1), n));
      const auto all = step_calls(cluster, program);
      const StepTime time = step_time_on(cluster, program);
      for (std::size_t c = 0; c < kComponents; ++c)
        EXPECT_NEAR(alone(all, static_cast<Component>(c)), time.seconds[c],
                    kRounding * time.total())
            << cluster.name << ", " << name(static_cast<Component>(c)) << ", micro-batches " << n;
      EXPECT_GE(all.size(), 4u);  // products, attention, memory-bound, optimizer
    }
}

TEST(StepCalls, have_the_flops_bytes_and_calls_of_the_program) {
  const Cluster cluster = h100s(1);
  const auto [config, program] = recorded(cluster, micro_batches(small_run(8), 3));
  double flops = 0, bytes = 0;
  std::int64_t calls = 0;
  for (const auto& entry : program.log->entries()) {
    if (entry.what != OpLog::What::op) continue;
    if (entry.op.kind == Op::Kind::collective && entry.op.ranks == 1) continue;
    ++calls;
    flops += entry.op.flops;
    bytes += static_cast<double>(entry.op.bytes);
  }
  bool has_gathers = false;
  for (const auto& component : step_calls(cluster, program))
    for (const auto& row : component.rows) {
      calls -= row.calls;
      flops -= row.flops;
      bytes -= row.bytes;
      has_gathers |= component.component == Component::communication_shard;
      EXPECT_EQ(row.measured_calls, 0) << row.name;
    }
  EXPECT_EQ(calls, 0);
  EXPECT_NEAR(flops, 0, 1);
  EXPECT_NEAR(bytes, 0, 1);
  EXPECT_TRUE(has_gathers);
}

// Only three of five micro-batches are recorded.
TEST(StepCalls, have_the_flops_of_all_tokens_of_a_step) {
  const auto flops_of = [](std::int64_t n) {
    double sum = 0;
    for (const auto& calls : step_calls(processors(1), micro_batches(small_run(1), n)))
      for (const auto& row : calls.rows)
        sum += row.flops;
    return sum;
  };
  EXPECT_DOUBLE_EQ(flops_of(5), 5 * flops_of(1));
}

TEST(StepCalls, show_which_times_were_measured) {
  Cluster cluster = processors(1);
  const auto [config, program] = recorded(cluster, small_run(1));
  const auto json = R"([{"operator": "swiglu_forward", "type": "fp32", "bytes": 1000, "calls": 1,
                         "seconds": 1e-3}])";
  cluster.operators = OperatorTimes::parse(Json::parse(json, "times"));
  int measured = 0;
  for (const auto& calls : step_calls(cluster, program))
    for (const auto& row : calls.rows) {
      const bool is_it = row.name == "swiglu_forward";
      EXPECT_EQ(row.measured_calls, is_it ? row.calls : 0) << row.name;
      measured += is_it ? 1 : 0;
    }
  EXPECT_EQ(measured, 1);
}

// The table has the calls whose time estimate() computes.
TEST(StepCalls, of_a_configuration_sum_to_its_estimate) {
  for (const Cluster& cluster : {h100s(1), processors(1)}) {
    const Config config = micro_batches(small_run(1), 4);
    const auto found = estimate(config, cluster);
    const auto all = step_calls(cluster, config);
    double sum = 0;
    for (const auto& calls : all)
      sum += calls.seconds();
    EXPECT_NEAR(sum, found.time.total(), kRounding * sum) << cluster.name;
  }
}

}  // namespace lockstep::testing::step_calls_test
