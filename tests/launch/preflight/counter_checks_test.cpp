#include "launch/preflight/counter_checks.h"

#include <cmath>

#include "core/system/hardware.h"
#include "tests/launch/preflight/preflight_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::counter_checks_test {

Finding found_of(const Counters& before, const Counters& now) {
  LoneRank lone;
  check_counters(lone.rank, {.machine = before, .gpu = {}}, {.machine = now, .gpu = {}});
  EXPECT_EQ(lone.rank.findings.size(), 1u);
  return lone.rank.findings.front();
}

TEST(CounterChecks, new_errors_are_named_and_counted) {
  const auto well = found_of({{"eth0 rx_errors", 7}}, {{"eth0 rx_errors", 7}});
  EXPECT_EQ(well.value, 0);
  EXPECT_EQ(well.limit, 0);
  const auto ill = found_of({{"eth0 rx_errors", 7}, {"mlx5_0 port 1 link_downed", 0}},
                            {{"eth0 rx_errors", 9}, {"mlx5_0 port 1 link_downed", 1}});
  EXPECT_EQ(ill.value, 3);
  EXPECT_EQ(ill.detail, "eth0 rx_errors +2, mlx5_0 port 1 link_downed +1");
  const auto verdict = judge({{ill}}, {{"host n1, rank 0", "n1/0"}}, {});
  ASSERT_EQ(verdict.faults.size(), 1u);
  expect_contains(verdict.faults.front().what, str("3 (", ill.detail, ")"));
  expect_wording("launch/preflight_checks", "new errors", verdict.faults.front().what);
}

TEST(CounterChecks, a_port_that_disappears_is_an_error_and_absent_counters_are_unknown) {
  const auto gone = found_of({{"mlx5_0 port 1 link_downed", 0},
                              {"mlx5_0 port 1 symbol_error", 0},
                              {"veth1a2b rx_errors", 0}},
                             {{"eth0 rx_errors", 7}});
  EXPECT_EQ(gone.value, 1);
  expect_contains(gone.detail, "mlx5_0 port 1");
  expect_wording("launch/preflight_checks", "a port that goes", gone.detail);
  const auto unknown = found_of({}, {});
  EXPECT_TRUE(std::isnan(unknown.value));
  EXPECT_EQ(unknown.failure, "");
}

GpuHealth health(std::int64_t link_errors, int up, int down) {
  GpuHealth one;
  one.uncorrected_errors.value = 0;
  one.needs_repair.value = false;
  one.link_errors.value = link_errors;
  one.links_up.value = up;
  one.links_down.value = down;
  return one;
}

// Findings of the only rank of a host, or of the first of two whose GPUs switches connect.
std::vector<Finding> gpu_findings(const GpuHealth& before, const GpuHealth& now, bool is_joined) {
  LoneRank lone(is_joined ? 2 : 1);
  lone.rank.known = find_hardware("NVIDIA H100");
  check_gpu_counters(lone.rank, before, now);
  return lone.rank.findings;
}

TEST(CounterChecks, only_new_nvlink_errors_count) {
  const auto value = [](const GpuHealth& before, const GpuHealth& now) {
    return find(gpu_findings(before, now, true), "errors of NVLinks, new")->value;
  };
  EXPECT_EQ(value(health(40, 18, 0), health(40, 18, 0)), 0);
  EXPECT_EQ(value(health(40, 18, 0), health(43, 18, 0)), 3);
  GpuHealth unknown = health(40, 18, 0);
  unknown.link_errors.value.reset();
  EXPECT_TRUE(std::isnan(value(unknown, health(43, 18, 0)))) << "of which none may be new";
  unknown.link_errors.failure = "GPU is lost";
  const auto found = gpu_findings(unknown, health(43, 18, 0), true);
  EXPECT_EQ(find(found, "errors of NVLinks, new")->failure, "NVML: GPU is lost");
}

TEST(CounterChecks, inactive_nvlinks_count_if_others_are_active_or_switches_connect_the_gpus) {
  const auto down = [](int up, int count, bool is_joined) {
    const auto now = health(0, up, count);
    return find(gpu_findings(now, now, is_joined), "NVLinks that are down")->value;
  };
  EXPECT_EQ(down(18, 0, false), 0);
  EXPECT_EQ(down(17, 1, false), 1);
  EXPECT_EQ(down(0, 18, true), 18);
  EXPECT_TRUE(std::isnan(down(0, 18, false))) << "alone, that may be meant";
}

}  // namespace lockstep::testing::counter_checks_test
