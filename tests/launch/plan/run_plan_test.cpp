#include "launch/plan/run_plan.h"

#include <cmath>
#include <gtest/gtest.h>

#include "launch/plan/plan_errors.h"
#include "tests/captured.h"
#include "tests/launch/plan/cluster_rig.h"
#include "tests/wording.h"
#include "train/run/memory_budget.h"
#include "train/step/memory.h"

namespace lockstep::testing::run_plan_test {

const Config kConfig = small_run(1);
const Cluster kCluster = processors(1);

Meter::Config meter() {
  Meter::Config config;
  config.step_tokens = 256;
  config.flops_per_token = 2e6;
  config.flops_per_token_square = 3e6;
  config.peak_flops = 5e12;
  return config;
}

TEST(RunPlan, has_the_times_and_bytes_of_the_estimate) {
  const auto plan = planned_run(kConfig, kCluster, meter(), "", "");
  const Estimate expected = estimate(kConfig, kCluster);
  EXPECT_EQ(plan.cluster, kCluster.name);
  EXPECT_EQ(plan.step.seconds, expected.time.total());
  EXPECT_EQ(time_of(plan.step).seconds, expected.time.seconds);
  EXPECT_EQ(plan.checkpoint_bytes, expected.save.bytes);
  EXPECT_FALSE(plan.corrected.has_value());
  std::int64_t bytes = 0;
  for (const auto& part : plan.memory)
    bytes += part.bytes;
  const auto sum = expected.bytes.sum();
  EXPECT_EQ(bytes, sum.device + sum.pinned + expected.constant_bytes);
}

TEST(RunPlan, relates_mfu_to_the_peak_of_the_run) {
  const auto plan = planned_run(kConfig, kCluster, meter(), "", "");
  const double tokens_per_second = 256 / plan.step.seconds;
  EXPECT_DOUBLE_EQ(plan.step.tokens_per_second, tokens_per_second);
  EXPECT_DOUBLE_EQ(plan.step.mfu, tokens_per_second * 2e6 / 5e12);
  EXPECT_DOUBLE_EQ(plan.step.mfu_square, tokens_per_second * 3e6 / 5e12);
  auto later = plan;  // with twice the peak
  Meter::Config larger = meter();
  larger.peak_flops *= 2;
  count_mfu(later, larger);
  EXPECT_DOUBLE_EQ(later.step.mfu, plan.step.mfu / 2);
  EXPECT_DOUBLE_EQ(later.step.mfu_square, plan.step.mfu_square / 2);
  Meter::Config low = meter();  // below the planned rate
  low.peak_flops = tokens_per_second * 2e6 / 1.1;
  count_mfu(later, low);
  EXPECT_TRUE(std::isnan(later.step.mfu) && std::isnan(later.step.mfu_square));
  Meter::Config unknown = meter();
  unknown.peak_flops = 0;
  EXPECT_TRUE(std::isnan(planned_run(kConfig, kCluster, unknown, "", "").step.mfu));
}

TEST(RunPlan, has_corrected_times_if_earlier_runs_left_residuals) {
  const TemporaryDirectory directory;
  const auto file = directory / "cluster.residuals.json";
  const auto raw = planned_run(kConfig, kCluster, meter(), file, "a");  // no such file
  EXPECT_FALSE(raw.corrected.has_value());
  StepTime planned, measured;
  planned[Component::products] = 1;
  measured[Component::products] = 1.5;
  PlanErrors plan_errors;
  plan_errors.add({.key = "a", .planned = planned, .measured = measured});
  plan_errors.write(file);
  const auto plan = planned_run(kConfig, kCluster, meter(), file, "a");
  EXPECT_EQ(plan.step.seconds, raw.step.seconds);
  const auto corrected = time_of(plan.corrected.value());
  EXPECT_DOUBLE_EQ(corrected[Component::products], 1.5 * time_of(raw.step)[Component::products]);
  EXPECT_DOUBLE_EQ(plan.corrected->seconds, corrected.total());
}

TEST(RunPlan, damaged_residuals_only_cause_a_warning) {
  const TemporaryDirectory directory;
  const auto file = directory / "cluster.residuals.json";
  spit(file, "damaged");
  PlanFile plan;
  const auto said = stderr_of([&] { plan = planned_run(kConfig, kCluster, meter(), file, "a"); });
  expect_contains(said, "warning: " + file.string());
  EXPECT_EQ(plan.step.seconds, planned_run(kConfig, kCluster, meter(), "", "a").step.seconds);
  EXPECT_FALSE(plan.corrected.has_value());
  EXPECT_EQ(slurp(file), "damaged");
}

TEST(RunPlan, an_existing_file_is_used_unless_it_is_of_another_configuration) {
  const TemporaryDirectory directory;
  const auto file = directory / "plan.json";
  EXPECT_FALSE(plan_that_is_there(file, "a").has_value());
  write_plan_file(file, planned_run(kConfig, kCluster, meter(), "", "a"));
  EXPECT_EQ(plan_that_is_there(file, "a")->key, "a");
  expect_wording("launch/run_plan", "of another configuration",
                 stderr_of([&] { EXPECT_FALSE(plan_that_is_there(file, "b").has_value()); }));
  write_plan_file(file, planned_run(kConfig, kCluster, meter(), "", ""));  // placed by a person
  EXPECT_TRUE(plan_that_is_there(file, "b").has_value());
}

TEST(RunPlan, of_known_gpus_needs_no_cluster_file) {
  const auto found = cluster_here("NVIDIA H100 80GB HBM3", 16, 2).value();
  EXPECT_EQ(found.nodes, 2);
  EXPECT_EQ(found.ranks_per_node, 8);
  EXPECT_EQ(found.hardware.domain_ranks, 8);
  EXPECT_EQ(found.host_memory_bytes, all_memory_bytes(Device{}));
  EXPECT_EQ(cluster_here("NVIDIA H100 80GB HBM3", 2, 1)->hardware.domain_ranks, 2);
  EXPECT_FALSE(cluster_here("Some Processor", 1, 1).has_value());
}

}  // namespace lockstep::testing::run_plan_test
