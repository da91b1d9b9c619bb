#include "core/thread_pool.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <gtest/gtest.h>
#include <pthread.h>
#include <stdexcept>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/affinity.h"
#include "core/error.h"
#include "core/start_thread.h"
#include "core/stream.h"
#include "tests/no_threads.h"
#include "tests/wording.h"

namespace lockstep::testing::thread_pool_test {

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

// Rounds have one or more tasks, and some end early. A late worker may join another round than the
// one that woke it.
TEST(ThreadPool, rounds_follow_each_other_and_an_exception_reaches_the_caller) {
  ThreadPool pool(4);
  for (std::int64_t round = 0; round < 3000; ++round) {
    const std::int64_t tasks = 2 + round % 7;
    const std::int64_t thrower = round % 3 == 0 ? round % tasks : tasks;  // tasks: none throws
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
    const auto body = [&](std::int64_t task, int) {
      runs[static_cast<std::size_t>(task)].fetch_add(1, std::memory_order_relaxed);
      if (task == thrower) throw std::runtime_error("thrown");
    };
    if (thrower < tasks) {
      EXPECT_THROW(pool.run(tasks, body), std::runtime_error);
    } else {
      pool.run(tasks, body);
    }
    for (std::int64_t task = 0; task < tasks; ++task) {
      const int count = runs[static_cast<std::size_t>(task)].load(std::memory_order_relaxed);
      EXPECT_LE(count, 1) << "task " << task << " of round " << round;
      EXPECT_TRUE(count == 1 || task > thrower) << "task " << task << " of round " << round;
    }
  }
}

// Calls body once on each of the pool's threads: no thread takes a second task before all have one.
void on_each_thread(ThreadPool& pool, FunctionRef<void(int)> body) {
  std::atomic<int> waiting{pool.threads()};
  pool.run(pool.threads(), [&](std::int64_t, int thread) {
    body(thread);
    waiting.fetch_sub(1);
    while (waiting.load() > 0)
      std::this_thread::yield();
  });
}

std::atomic<bool> hold{false};
std::atomic<bool> held{false};

// Runs in a signal handler and blocks the thread, as if it got no CPU time.
void stand_still(int) {
  held = true;
  for (int i = 0; i < 5000 && hold; ++i)
    usleep(1000);
  held = false;
}

TEST(ThreadPool, a_worker_without_cpu_time_delays_nothing) {
  ThreadPool pool(2);
  std::atomic<pthread_t> worker{};
  on_each_thread(pool, [&](int thread) {
    if (thread == 1) worker = pthread_self();
  });
  hold = true;
  const auto before = std::signal(SIGUSR1, stand_still);
  pthread_kill(worker, SIGUSR1);
  while (!held)
    usleep(100);
  std::atomic<std::int64_t> sum{0};
  for (int round = 0; round < 10; ++round)
    pool.run(100, [&](std::int64_t task, int thread) {
      EXPECT_EQ(thread, 0);
      sum.fetch_add(task);
    });
  EXPECT_TRUE(held);
  EXPECT_EQ(sum.load(), 10 * 4950);
  hold = false;
  on_each_thread(pool, [&](int) { sum.fetch_add(1); });  // the worker joins a later round
  EXPECT_EQ(sum.load(), 10 * 4950 + 2);
  std::signal(SIGUSR1, before);
}

TEST(ThreadPool, one_thread_per_cpu_is_pinned_during_its_lifetime) {
  const auto all = affinity();
  if (all.size() < 2 || all.size() > 256) GTEST_SKIP() << "on " << all.size() << " processors";
  {
    ThreadPool pool(static_cast<int>(all.size()));
    std::vector<std::vector<int>> of_thread(all.size());
    on_each_thread(pool,
                   [&](int thread) { of_thread[static_cast<std::size_t>(thread)] = affinity(); });
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(of_thread[i], std::vector<int>{all[i]}) << "thread " << i;
    std::thread([&] {
      EXPECT_EQ(affinity().size(), 1u);  // inherited
      use_all_processors();
      EXPECT_EQ(affinity(), all);
    }).join();
  }
  EXPECT_EQ(affinity(), all);
}

TEST(ThreadPool, fewer_and_more_threads_than_cpus_are_not_pinned) {
  const auto all = affinity();
  for (const int threads : {static_cast<int>(all.size()) + 1, 1}) {
    ThreadPool pool(threads);
    on_each_thread(pool, [&](int thread) { EXPECT_EQ(affinity(), all) << "thread " << thread; });
  }
}

TEST(ThreadPool, denormals_are_flushed_on_its_threads_during_its_lifetime) {
  const auto half_of_the_smallest_normal = [] {
    const volatile float smallest = 0x1p-126f;
    return smallest * 0.5f;
  };
  ASSERT_NE(half_of_the_smallest_normal(), 0);
  {
    ThreadPool pool(3);
    on_each_thread(pool, [&](int thread) {
      EXPECT_EQ(half_of_the_smallest_normal(), 0) << "thread " << thread;
    });
    { ThreadPool inner(1); }
    EXPECT_EQ(half_of_the_smallest_normal(), 0);
  }
  EXPECT_NE(half_of_the_smallest_normal(), 0);
}

// Runs in its own process, because the setting is per process.
TEST(ThreadPool, a_process_stays_on_the_cpus_that_it_is_given) {
  const auto all = affinity();
  if (all.size() < 2) GTEST_SKIP() << "on one processor";
  const auto take_the_last = [&] {
    if (processors_allowed() < 1) _exit(2);  // other tests may have called it before
    use_processors({all.back()}, 1);
    if (processors_allowed() != 1 || affinity() != std::vector{all.back()}) _exit(3);
    std::thread([] { use_all_processors(); }).join();
    { ThreadPool pool(2); }
    if (affinity() != std::vector{all.back()}) _exit(4);
    try {
      use_processors(all, 1);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      _exit(0);
    }
    _exit(5);
  };
  EXPECT_EXIT(
      take_the_last(), ::testing::ExitedWithCode(0),
      str("CPUs ", cpu_list(all), " .* ", cpu_list(std::vector{all.back()}), " of this process"));
}

// Runs act() in a process whose user may have `most` threads, and prints its TransientError. Uses
// an otherwise unused user id if possible; otherwise the first thread already exceeds the limit.
template <class Act>
[[noreturn]] void run_with_threads(unsigned most, const Act& act) {
  const bool root = geteuid() == 0;
  const rlimit few{root ? most : 1u, root ? most : 1u};
  setrlimit(RLIMIT_NPROC, &few);
  if (root && setuid(static_cast<uid_t>(1'000'000'000 + getpid())) != 0) _exit(2);
  try {
    act();
  } catch (const TransientError& error) {
    std::fputs(error.what(), stderr);
    _exit(1);
  }
  _exit(0);
}

TEST(ThreadPool, a_thread_that_cannot_start_is_an_error_and_the_others_end) {
  const auto start_too_many = [] { run_with_threads(4, [] { const ThreadPool pool(20); }); };
  EXPECT_EXIT(start_too_many(), ::testing::ExitedWithCode(1), "[0-9]+ of 20 .*`ulimit -u`");
}

// The queue's own thread starts, but no pool thread.
TEST(ThreadPool, a_queue_without_a_pool_fails_all_its_work) {
  const auto start = [] {
    run_with_threads(2, [] {
      Stream queue(Device{}, "queue", Stream::Mode::queued, 4);
      queue.enqueue([](Stream&) { _exit(3); });
      queue.synchronize();
    });
  };
  EXPECT_EXIT(start(), ::testing::ExitedWithCode(1), "`ulimit -u`");
}

TEST(StartThread, a_thread_that_cannot_start_is_an_error_with_the_limits) {
  {
    const NoThreads none;
    const auto refused = [](const char* name, const auto& act) {
      expect_refusal<TransientError>("core/start_thread", name, {"`ulimit -u`"}, act);
    };
    refused("thread", [] { start_thread([] {}).join(); });
    refused("task", [] { start_task([] {}).get(); });
    refused("pool", [] { const ThreadPool pool(20); });
  }
  start_thread([] {}).join();
}

}  // namespace lockstep::testing::thread_pool_test
