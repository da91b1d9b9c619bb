// Runs a simulation with many seeds. Invariants of the simulations:
//
//   1  at most one epoch changes the checkpoints that count
//   2  the next start finds each announced checkpoint, unless more disks were lost than allowed
//   3  the state at a step is that of a run without faults
//   4  a fault has one verdict, which names an injected host or rank; without a fault there is none
//   5  after the last fault the job is quiet within a bound: all ranks ended, or a step is complete
//   6  a restart repeats at most the steps since the last save, and the interrupted step
//   7  the number of restarts without progress is limited
//   8  queues stay below their limits
//   9  the goodput of the ledger is the share of the time that trained, within 1 %
//  10  ranks that train are stopped only for a request (stop, drain, a host that leaves) or a
//  straggler
//
// LOCKSTEP_SIM_SEED=N runs only that seed, and prints its events.
#pragma once

#include <cstdlib>
#include <gtest/gtest.h>

#include "tests/sim/kernel.h"

namespace lockstep::sim {

using Run = std::function<void(Kernel& kernel)>;

inline Kernel run_seed(std::uint64_t seed, const Run& run, bool traces = false) {
  Kernel kernel(seed);
  kernel.set_tracing(traces);
  run(kernel);
  return kernel;
}

// Expects no violation. Each 20th seed runs twice and must give one hash.
inline void for_seeds(int count, const Run& run, std::uint64_t first = 1) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto* only = std::getenv("LOCKSTEP_SIM_SEED");
  if (only != nullptr) {
    first = std::strtoull(only, nullptr, 10);
    count = 1;
  }
  std::int64_t events = 0;
  for (auto seed = first; seed < first + static_cast<std::uint64_t>(count); ++seed) {
    const auto kernel = run_seed(seed, run, only != nullptr);
    events += kernel.count();
    if (kernel.failed()) {
      ADD_FAILURE() << kernel.violation() << "\nrepeat it: LOCKSTEP_SIM_SEED=" << seed
                    << " sim_tests --gtest_filter=" << test->test_suite_name() << '.'
                    << test->name();
      return;
    }
    if (seed % 20 == 0 || only != nullptr) {
      EXPECT_EQ(run_seed(seed, run).hash(), kernel.hash()) << "seed " << seed;
    }
  }
  std::printf("%d seeds, %.2f M events\n", count, static_cast<double>(events) * 1e-6);
}

// For a mutated program: a seed must break `invariant`, and no earlier seed another invariant.
inline void expect_violation(int invariant, int count, const Run& run) {
  const auto* traced = std::getenv("LOCKSTEP_SIM_SEED");
  for (int seed = 1; seed <= count; ++seed) {
    const bool traces = traced != nullptr && str(seed) == traced;
    const auto kernel = run_seed(static_cast<std::uint64_t>(seed), run, traces);
    if (!kernel.failed()) continue;
    EXPECT_EQ(kernel.violated(), invariant) << kernel.violation();
    std::printf("found: %s\n", kernel.violation().c_str());
    return;
  }
  ADD_FAILURE() << "no seed of " << count << " breaks invariant " << invariant;
}

}  // namespace lockstep::sim
