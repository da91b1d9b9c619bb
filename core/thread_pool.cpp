#include "core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/affinity.h"
#include "core/control_groups.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/start_thread.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

constexpr int kSpins = 2000;  // about 50 microseconds of pause instructions

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::uint64_t float_control() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  std::uint64_t fpcr = 0;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
#endif
}
void set_float_control(std::uint64_t control) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(control));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" ::"r"(control));
#endif
}
void flush_denormals() {
#if defined(__x86_64__)
  constexpr std::uint64_t kFlush = 0x8040;  // FTZ and DAZ
#elif defined(__aarch64__)
  constexpr std::uint64_t kFlush = std::uint64_t{1} << 24;
#endif
  set_float_control(float_control() | kFlush);
}

// CPUs of the process, constant once threads exist, because later calls may come from pinned
// threads. Never destroyed, because destructors of pools use it until the process ends.
struct Allowed {
  std::vector<int> processors = affinity();
  int busy =
      std::clamp(static_cast<int>(processors.size()), 1, processors_granted(control_groups()));
};
Allowed& allowed() {
  static auto& the_process = *new Allowed;
  return the_process;
}

}  // namespace

int processors_allowed() {
  return allowed().busy;
}

void use_processors(std::vector<int> processors, int busy) {
  auto& before = allowed();
  LOCKSTEP_CHECK(std::includes(before.processors.begin(), before.processors.end(),
                               processors.begin(), processors.end()),
                 "CPUs ", cpu_list(processors), " are not all in the affinity mask ",
                 cpu_list(before.processors), " of this process");
  LOCKSTEP_CHECK(busy >= 1, "expected at least 1 busy CPU, got ", busy);
  before = {std::move(processors), std::min(busy, before.busy)};
  use_all_processors();
}

int most_threads() {
  constexpr int kForEachProcessor = 4;
  return kForEachProcessor * processors_allowed();
}

void use_all_processors() {
  set_affinity(allowed().processors);
}

// A round works as follows. The caller publishes the body and the tasks, and advances `round`, on
// which idle workers wait. All threads claim tasks until none is left. The caller waits until all
// claimed tasks are done. A worker without CPU time has claimed no task and delays nothing: later
// it finds the round finished, or joins a later one.
struct ThreadPool::State {
  alignas(64) std::atomic<std::uint32_t> round{0};
  // Number of unclaimed tasks. A claim takes a task of the current round, even if it read the same
  // count in an earlier round. The round does not end before its claimed tasks are done, so `tasks`
  // and `body` stay valid for the claim.
  alignas(64) std::atomic<std::uint32_t> unclaimed{0};
  // Number of tasks that are not done. A thread subtracts all tasks that it claimed when it leaves
  // the round.
  alignas(64) std::atomic<std::uint32_t> unfinished{0};
  std::atomic<bool> stopping{false};
  std::int64_t tasks = 0;
  const FunctionRef<void(std::int64_t, int)>* body = nullptr;
  std::mutex error_mutex;
  std::exception_ptr error;
  std::vector<std::thread> workers;
  std::uint64_t callers_float_control = 0;
  bool pinned = false;

  void publish(std::int64_t count, const FunctionRef<void(std::int64_t, int)>& of_each) {
    body = &of_each;
    tasks = count;
    unfinished.store(static_cast<std::uint32_t>(count), std::memory_order_relaxed);
    unclaimed.store(static_cast<std::uint32_t>(count), std::memory_order_release);
    round.fetch_add(1, std::memory_order_release);
    round.notify_all();
  }

  // Claims a task and returns its number, or -1 if none is left.
  std::int64_t claim() {
    auto left = unclaimed.load(std::memory_order_relaxed);
    do {
      if (left == 0) return -1;
    } while (!unclaimed.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                              std::memory_order_relaxed));
    return tasks - left;
  }

  void work(int thread) {
    std::uint32_t claimed = 0;
    try {
      for (auto task = claim(); task >= 0; task = claim()) {
        ++claimed;
        (*body)(task, thread);
      }
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      claimed += unclaimed.exchange(0, std::memory_order_relaxed);  // skips the other tasks
    }
    if (claimed != 0 && unfinished.fetch_sub(claimed, std::memory_order_acq_rel) == claimed)
      unfinished.notify_one();
  }

  void serve(int thread) {
    flush_denormals();
    std::uint32_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && round.load(std::memory_order_acquire) == seen; ++spin)
        pause_briefly();
      round.wait(seen, std::memory_order_acquire);
      seen = round.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_relaxed)) return;
      work(thread);
    }
  }

  void wait_for_the_claimed() {
    for (int spin = 0; spin < kSpins && unfinished.load(std::memory_order_acquire) != 0; ++spin)
      pause_briefly();
    for (auto now = unfinished.load(std::memory_order_acquire); now != 0;
         now = unfinished.load(std::memory_order_acquire))
      unfinished.wait(now, std::memory_order_acquire);
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads), state_(std::make_unique<State>()) {
  LOCKSTEP_CHECK(threads >= 1, "a thread pool needs at least 1 thread, got ", threads);
  state_->callers_float_control = float_control();
  flush_denormals();
  state_->pinned = threads > 1 && static_cast<int>(allowed().processors.size()) == threads;
  try {
    start_workers();
  } catch (const std::system_error& error) {
    const auto started = state_->workers.size() + 1;
    stop_workers();
    fail_to_start_thread(str("started ", started, " of ", threads, " threads, the next failed"),
                         error);
  }
}

ThreadPool::~ThreadPool() {
  stop_workers();
}

void ThreadPool::start_workers() {
  const auto& cpus = allowed().processors;
  state_->workers.reserve(static_cast<std::size_t>(threads_ - 1));
  for (int i = 1; i < threads_; ++i) {
    auto& worker = state_->workers.emplace_back([this, i] { state_->serve(i); });
    if (state_->pinned)
      set_affinity({&cpus[static_cast<std::size_t>(i)], 1}, worker.native_handle());
  }
  if (state_->pinned) set_affinity({&cpus[0], 1});
}

void ThreadPool::stop_workers() {
  state_->stopping.store(true, std::memory_order_relaxed);
  state_->round.fetch_add(1, std::memory_order_release);
  state_->round.notify_all();
  for (auto& worker : state_->workers)
    worker.join();
  if (state_->pinned) use_all_processors();
  set_float_control(state_->callers_float_control);
}

void ThreadPool::run(std::int64_t tasks, FunctionRef<void(std::int64_t, int)> body) {
  if (tasks <= 0) return;
  made_progress();
  if (threads_ == 1 || tasks == 1) {
    for (std::int64_t task = 0; task < tasks; ++task)
      body(task, 0);
    return;
  }
  LOCKSTEP_CHECK(tasks <= std::numeric_limits<std::uint32_t>::max(), "got ", tasks,
                 " tasks, expected at most 4294967295");
  State& s = *state_;
  s.publish(tasks, body);
  s.work(0);
  s.wait_for_the_claimed();
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace lockstep
