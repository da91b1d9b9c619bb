#include "launch/plan/step_comparison.h"

#include <cmath>
#include <gtest/gtest.h>

#include "tests/wording.h"

namespace lockstep::testing::step_comparison_test {

StepReport step_of(const StepTime& time) {
  StepReport report;
  report.time = time;
  return report;
}

StepTime time_of(std::initializer_list<std::pair<Component, double>> parts) {
  StepTime time;
  for (const auto& [component, seconds] : parts)
    time[component] = seconds;
  return time;
}

StepTime unknown_but_for_checkpoints(double seconds) {
  StepTime time;
  time.seconds.fill(StepReport::kUnknown);
  time[Component::checkpoint] = seconds;
  return time;
}

TEST(MeanStep, averages_timed_steps_and_checkpoints_over_all_steps_except_the_first) {
  MeanStep mean;
  mean.add(step_of(time_of({{Component::products, 100}, {Component::checkpoint, 100}})));
  EXPECT_EQ(mean.timed_steps(), 0);
  EXPECT_TRUE(std::isnan(mean.own_seconds()));
  mean.add(step_of(time_of({{Component::products, 1}, {Component::data, 0.5}})));
  mean.add(step_of(unknown_but_for_checkpoints(6)));
  mean.add(step_of(time_of({{Component::products, 2}})));
  EXPECT_EQ(mean.timed_steps(), 2);
  EXPECT_EQ(mean.time()[Component::products], 1.5);
  EXPECT_EQ(mean.time()[Component::data], 0.25);
  EXPECT_EQ(mean.time()[Component::checkpoint], 2);
  mean.clear();
  mean.add(step_of(time_of({{Component::products, 3}})));  // not the first step of the run
  EXPECT_EQ(mean.time()[Component::products], 3);
}

TEST(MeanStep, own_seconds_exclude_collectives_and_checkpoints) {
  StepTime all;
  for (std::size_t i = 0; i < kComponents; ++i)
    all.seconds[i] = std::pow(2.0, static_cast<double>(i));
  const double waits = all[Component::communication_tensor] + all[Component::communication_shard] +
                       all[Component::communication_replicate] +
                       all[Component::communication_ranks] + all[Component::checkpoint];
  MeanStep mean;
  mean.add(step_of({}));
  mean.add(step_of(all));
  EXPECT_EQ(mean.own_seconds(), all.total() - waits);
}

TEST(StepComparison, has_components_of_the_plan_or_the_run_except_negligible_ones) {
  const auto planned = time_of({{Component::products, 0.5},
                                {Component::attention, 1e-3},
                                {Component::communication_host, 1e-9}});
  const auto measured =
      time_of({{Component::products, 0.5}, {Component::data, 1e-3}, {Component::other, 1e-6}});
  const auto table = comparison_table(planned, measured);
  for (const char* there : {"matmuls", "attention", "data", "step"})
    expect_contains(table, str("\n  ", there, " "));
  for (const char* none : {"host", "other", "checkpoint", "memory-bound"})
    EXPECT_EQ(table.find(none), std::string::npos) << table;
}

TEST(StepComparison, a_deviation_is_above_10_percent_of_the_component_and_1_percent_of_the_step) {
  const auto planned = time_of({{Component::products, 0.5},
                                {Component::attention, 0.3},
                                {Component::optimizer, 0.2},
                                {Component::data, 0.001}});
  const auto measured = time_of({{Component::products, 0.54},   // 8 %
                                 {Component::attention, 0.36},  // 20 %
                                 {Component::optimizer, 0.15},  // - 25 %
                                 {Component::data, 0.002},      // twice the time, but negligible
                                 {Component::other, 0.02}});    // planned as 0
  std::vector<Component> off;
  for (const Deviation& deviation : deviations(planned, measured))
    off.push_back(deviation.component);
  EXPECT_EQ(off, (std::vector{Component::attention, Component::optimizer, Component::other}));
}

TEST(StepComparison, a_table_has_a_line_for_each_component_with_time_and_for_the_sum) {
  const auto table =
      comparison_table(time_of({{Component::products, 0.281}, {Component::optimizer, 0.02}}),
                       time_of({{Component::products, 0.297}, {Component::data, 0.0004}}));
  for (const char* row : {" 281 ms   297 ms     +6%\n", " 20.0 ms        0   -100%\n",
                          "       0   400 us     new\n", " 301 ms   297 ms     -1%"})
    expect_contains(table, row);
  expect_wording("launch/step_comparison", "table", table);
}

TEST(StepComparison, deviations_are_reported_with_a_likely_cause_such_as_reduced_clocks) {
  const RunsOn kGpu{.device = Device::Kind::cuda};
  const auto hot = [&](const char* why) {
    RunsOn where = kGpu;
    where.slowed_by = {why};
    return where;
  };
  const Deviation attention{Component::attention, 0.031, 0.0372};
  const Deviation slow_data{Component::data, 0.1, 0.2}, fast{Component::products, 0.2, 0.1};
  const auto said = [](const std::string& name, const std::vector<Deviation>& off,
                       const RunsOn& where, std::initializer_list<std::string> pins) {
    const auto text = in_words(off, where);
    for (const auto& pin : pins)
      expect_contains(text, pin);
    expect_wording("launch/step_comparison", name, text);
  };
  said("slow on a GPU", {attention}, kGpu, {"37.2 ms", "31.0 ms", "+20%"});
  said("slow on a hot GPU", {attention}, hot("heat (hardware thermal slowdown)"),
       {"+20%", "heat (hardware thermal slowdown)"});
  said("slow data on a hot GPU", {slow_data}, hot("heat"), {"+100%"});
  said("fast on a hot GPU", {fast}, hot("heat"),
       {"100 ms", "200 ms", "-50%", "lockstep preflight"});
  said("several, of which two have one cause",
       {fast, {Component::optimizer, 0.2, 0.1}, slow_data, fast}, kGpu,
       {"100 ms", "200 ms", "-50%", "+100%"});
  said("slow on processors", {attention}, {.device = Device::Kind::cpu}, {"37.2 ms", "+20%"});
  RunsOn other = hot("heat");
  other.unlike_plan = "planned for 1 thread per rank, not 2";
  for (const double measured : {0.2, 0.05})
    expect_contains(in_words({{Component::products, 0.1, measured}}, other),
                    "%): " + other.unlike_plan);
  for (const auto device : {Device::Kind::cuda, Device::Kind::cpu})
    for (std::size_t i = 0; i < kComponents; ++i) {
      const auto text = in_words({{static_cast<Component>(i), 0.1, 0.2}}, {.device = device});
      EXPECT_GT(text.size(), text.find("): ") + 20) << text;
    }
  const Deviation gathers{Component::communication_shard, 0.1, 0.2};
  for (const auto device : {Device::Kind::cuda, Device::Kind::cpu}) {
    expect_contains(in_words({gathers}, {.device = device, .hosts = 2}), "network");
    EXPECT_EQ(in_words({gathers}, {.device = device}).find("network"), std::string::npos);
  }
}

}  // namespace lockstep::testing::step_comparison_test
