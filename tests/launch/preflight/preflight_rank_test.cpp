#include "launch/preflight/preflight_rank.h"

#include <cmath>
#include <sstream>
#include <thread>

#include "tests/files.h"
#include "tests/launch/preflight/preflight_rig.h"
#include "tests/support/thread_world.h"

namespace lockstep::testing::preflight_rank_test {

TEST(PreflightRank, a_check_that_throws_is_a_finding_with_the_reason) {
  LoneRank lone;
  EXPECT_EQ(lone.rank.add({.check = "well"}, [](Finding& f) { f.value = 7; }), 7);
  EXPECT_EQ(lone.rank.add({.check = "unknown"}, [](Finding&) {}), 0);
  const auto fail = [](Finding& f) {
    f.value = 7;
    throw TransientError("too hot");
  };
  EXPECT_EQ(lone.rank.add({.check = "ill"}, fail), 0);
  const auto refuse = [](Finding&) { throw ConfigError("no such folder"); };
  EXPECT_EQ(lone.rank.add({.check = "wrong"}, refuse), 0);
  const auto& found = lone.rank.findings;
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].failure, "");
  EXPECT_EQ(found[0].value, 7);
  EXPECT_EQ(found[1].failure, "");
  EXPECT_TRUE(std::isnan(found[1].value));
  EXPECT_EQ(found[2].failure, "too hot");
  EXPECT_FALSE(found[2].is_wrong_configuration);
  EXPECT_EQ(found[3].failure, "no such folder");
  EXPECT_TRUE(found[3].is_wrong_configuration);
}

// The column "tolerance, GPU / CPU" of the row of docs/preflight.md that begins with `check`.
std::string documented_tolerance(const std::string& check) {
  std::istringstream page(slurp(std::filesystem::path(LOCKSTEP_DOCS) / "preflight.md"));
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with(str("| `", check))) continue;
    std::istringstream row(line);
    std::string column;
    for (int i = 0; i < 4; ++i)
      std::getline(row, column, '|');
    return column.substr(1, column.size() - 2);
  }
  return str("no row of ", check);
}

TEST(PreflightRank, tolerances_are_those_of_the_documentation) {
  const auto& gpu = tolerances_of(Device::Kind::cuda);
  const auto& cpu = tolerances_of(Device::Kind::cpu);
  const auto in_words = [](double on_gpus, double on_processors) {
    const auto percent = [](double share) {
      return share > 0 ? str(std::lround(100 * share), " %") : "-";
    };
    return on_gpus == on_processors ? percent(on_gpus)
                                    : str(percent(on_gpus), " / ", percent(on_processors));
  };
  EXPECT_EQ(documented_tolerance("matmul "), in_words(gpu.products, cpu.products));
  EXPECT_EQ(documented_tolerance("clock under load"), in_words(gpu.clocks, cpu.clocks));
  EXPECT_EQ(documented_tolerance("memory, read"), in_words(gpu.memory, cpu.memory));
  EXPECT_EQ(documented_tolerance("copy from"), in_words(gpu.copies, cpu.copies));
  EXPECT_EQ(documented_tolerance("sends to"), in_words(gpu.links, cpu.links));
  EXPECT_EQ(documented_tolerance("storage, written"), in_words(gpu.storage, cpu.storage));
  EXPECT_EQ(documented_tolerance("a step's own"), in_words(gpu.steps, cpu.steps));
  EXPECT_EQ(documented_tolerance("all_gather of"),
            str(in_words(gpu.links, cpu.links), ", latency twice / four times"));
  EXPECT_EQ(1 + gpu.latency, 2);
  EXPECT_EQ(1 + cpu.latency, 4);
}

TEST(PreflightRank, values_of_all_ranks_are_the_same_on_each_rank) {
  const std::vector<double> said{4, 1e-9, 2.5};
  run_thread_ranks(3, [&](World& world) {
    const double mine = said[static_cast<std::size_t>(world.rank())];
    EXPECT_EQ(numbers_of_ranks(world, mine), said);
    EXPECT_EQ(largest_of_ranks(world, mine), 4);
    EXPECT_EQ(median_of_ranks(world, mine), 2.5);
  });
  // The median of two is the slower one, because a step waits for it.
  run_thread_ranks(2, [](World& world) {
    EXPECT_EQ(median_of_ranks(world, world.rank() == 0 ? 1.5 : 1.0), 1.5);
  });
}

TEST(PreflightRank, calls_fill_the_window_of_a_measurement) {
  EXPECT_EQ(calls_in_window(0.09), 3);
  EXPECT_EQ(calls_in_window(100), 1);
  EXPECT_EQ(calls_in_window(100, 3), 3);
  EXPECT_EQ(calls_in_window(0), 100'000);
}

TEST(PreflightRank, a_call_has_the_time_that_the_clock_measures) {
  LoneRank lone;
  constexpr auto kCall = std::chrono::milliseconds(60);
  int calls = 0, calls_at_end = 0;
  const double seconds = mean_seconds(
      lone.compute,
      [&] {
        ++calls;
        std::this_thread::sleep_for(kCall);
      },
      [&] { calls_at_end = calls; });
  EXPECT_GE(seconds, 0.06);
  EXPECT_LT(seconds, 0.6);
  EXPECT_GE(calls, 2 + 3);  // two before the measurement, then as many as fit
  EXPECT_LE(calls, 2 + 5);
  EXPECT_EQ(calls_at_end, calls);
}

TEST(PreflightRank, a_call_that_takes_seconds_is_made_once) {
  LoneRank lone;
  int calls = 0;
  const double seconds = mean_seconds(lone.compute, [&] {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(2050));
  });
  EXPECT_EQ(calls, 1);
  EXPECT_GE(seconds, 2.05);
}

TEST(PreflightRank, another_seed_gives_other_words) {
  std::vector<std::byte> a(64), b(64), c(64);
  fill_words(a, 1);
  fill_words(b, 1);
  fill_words(c, 2);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  EXPECT_NE(std::vector(a.begin(), a.begin() + 8), std::vector(a.begin() + 8, a.begin() + 16));
}

}  // namespace lockstep::testing::preflight_rank_test
