#include "train/preflight/counter_checks.h"

#include <cmath>

#include "tests/train/preflight/preflight_rig.h"

namespace lockstep::testing {
namespace {

Finding found_of(const Counters& before, const Counters& now) {
  LoneRank lone;
  check_counters(lone.rank, {.machine = before, .gpu = {}}, {.machine = now, .gpu = {}});
  EXPECT_EQ(lone.rank.findings.size(), 1u);
  return lone.rank.findings.front();
}

TEST(CounterChecks, errors_that_are_new_are_named_and_counted) {
  const auto well = found_of({{"eth0 rx_errors", 7}}, {{"eth0 rx_errors", 7}});
  EXPECT_EQ(well.value, 0);
  EXPECT_EQ(well.limit, 0);
  const auto ill = found_of({{"eth0 rx_errors", 7}, {"mlx5_0 port 1 link_downed", 0}},
                            {{"eth0 rx_errors", 9}, {"mlx5_0 port 1 link_downed", 1}});
  EXPECT_EQ(ill.value, 3);
  EXPECT_EQ(ill.detail, "eth0 rx_errors +2, mlx5_0 port 1 link_downed +1");
  const auto verdict = judge({{ill}}, {{"host n1, rank 0", "n1/0"}}, {});
  ASSERT_EQ(verdict.faults.size(), 1u);
  EXPECT_EQ(verdict.faults.front().what,
            "errors of adapters and processors, new: 3 (eth0 rx_errors +2, mlx5_0 port 1 "
            "link_downed +1), expected at most 0");
}

TEST(CounterChecks, a_port_that_goes_is_an_error_and_no_counters_are_unknown) {
  const auto gone = found_of({{"mlx5_0 port 1 link_downed", 0},
                              {"mlx5_0 port 1 symbol_error", 0},
                              {"veth1a2b rx_errors", 0}},
                             {{"eth0 rx_errors", 7}});
  EXPECT_EQ(gone.value, 1);
  EXPECT_EQ(gone.detail, "mlx5_0 port 1 is gone");
  const auto unknown = found_of({}, {});
  EXPECT_TRUE(std::isnan(unknown.value));
  EXPECT_EQ(unknown.failure, "");
}

}  // namespace
}  // namespace lockstep::testing
