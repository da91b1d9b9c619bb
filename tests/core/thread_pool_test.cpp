#include "core/thread_pool.h"

#include <atomic>
#include <gtest/gtest.h>
#include <stdexcept>
#include <vector>

namespace lockstep {
namespace {

TEST(ThreadPool, every_task_runs_exactly_once) {
  ThreadPool pool(3);
  for (const std::int64_t tasks : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
    pool.run(tasks, [&](std::int64_t task, int thread) {
      ASSERT_GE(thread, 0);
      ASSERT_LT(thread, 3);
      runs[static_cast<std::size_t>(task)].fetch_add(1);
    });
    for (const auto& n : runs)
      EXPECT_EQ(n.load(), 1);
  }
}

TEST(ThreadPool, rounds_follow_each_other_without_losing_tasks) {
  ThreadPool pool(4);
  std::atomic<std::int64_t> sum{0};
  for (int round = 0; round < 2000; ++round)
    pool.run(5, [&](std::int64_t task, int) { sum.fetch_add(task); });
  EXPECT_EQ(sum.load(), 2000 * 10);
}

TEST(ThreadPool, an_exception_reaches_the_caller_and_the_pool_goes_on) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.run(100,
                        [](std::int64_t task, int) {
                          if (task == 17) throw std::runtime_error("task 17");
                        }),
               std::runtime_error);
  std::atomic<int> count{0};
  pool.run(10, [&](std::int64_t, int) { count.fetch_add(1); });
  EXPECT_EQ(count.load(), 10);
}

}  // namespace
}  // namespace lockstep
