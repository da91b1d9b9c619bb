#include "core/thread_pool.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.h"

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

// Denormals are flushed: they are noise in training and slow down the moments of AdamW by 2.6x.
void flush_denormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // FTZ and DAZ
#elif defined(__aarch64__)
  std::uint64_t fpcr = 0;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  asm volatile("msr fpcr, %0" ::"r"(fpcr | (std::uint64_t{1} << 24)));
#endif
}

std::vector<int> affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

// Of the process, constant: later calls may come from a thread that is pinned.
const std::vector<int>& allowed_processors() {
  static const std::vector<int> cpus = affinity();
  return cpus;
}

void run_on(std::span<const int> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus)
    CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a hint: failure costs only speed
}

}  // namespace

int processors_allowed() {
  const auto& cpus = allowed_processors();
  return cpus.empty() ? 1 : static_cast<int>(cpus.size());
}

int most_threads() {
  constexpr int kForEachProcessor = 4;
  return kForEachProcessor * processors_allowed();
}

void use_all_processors() {
  run_on(allowed_processors());
}

// A round: the caller publishes body and task count, resets the claim counter, and advances
// `round`; workers claim tasks and count themselves out of `busy`.
struct ThreadPool::State {
  alignas(64) std::atomic<std::uint32_t> round{0};
  alignas(64) std::atomic<std::int64_t> next{0};
  alignas(64) std::atomic<int> busy{0};
  std::atomic<bool> stopping{false};
  std::int64_t tasks = 0;
  const FunctionRef<void(std::int64_t, int)>* body = nullptr;
  std::mutex error_mutex;
  std::exception_ptr error;
  std::vector<std::thread> workers;
  bool pinned = false;

  void work(int thread) {
    try {
      for (;;) {
        const auto task = next.fetch_add(1, std::memory_order_relaxed);
        if (task >= tasks) return;
        (*body)(task, thread);
      }
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      next.store(tasks, std::memory_order_relaxed);
    }
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
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) busy.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads), state_(std::make_unique<State>()) {
  LOCKSTEP_CHECK(threads >= 1, "a thread pool needs at least 1 thread, got ", threads);
  flush_denormals();
  state_->pinned = threads > 1 && processors_allowed() == threads;
  try {
    start_workers();
  } catch (const std::system_error& error) {
    const auto started = state_->workers.size() + 1;
    stop_workers();
    throw Error(str("started ", started, " of ", threads, " threads, the next: ", error.what(),
                    "; ask for fewer"));
  }
}

ThreadPool::~ThreadPool() {
  stop_workers();
}

void ThreadPool::start_workers() {
  const auto& cpus = allowed_processors();
  state_->workers.reserve(static_cast<std::size_t>(threads_ - 1));
  for (int i = 1; i < threads_; ++i)
    state_->workers.emplace_back([this, i, &cpus] {
      if (state_->pinned) run_on({&cpus[static_cast<std::size_t>(i)], 1});
      state_->serve(i);
    });
  if (state_->pinned) run_on({&cpus[0], 1});
}

void ThreadPool::stop_workers() {
  state_->stopping.store(true, std::memory_order_relaxed);
  state_->round.fetch_add(1, std::memory_order_release);
  state_->round.notify_all();
  for (auto& worker : state_->workers)
    worker.join();
  if (state_->pinned) use_all_processors();
}

void ThreadPool::run(std::int64_t tasks, FunctionRef<void(std::int64_t, int)> body) {
  if (tasks <= 0) return;
  if (threads_ == 1 || tasks == 1) {
    for (std::int64_t task = 0; task < tasks; ++task)
      body(task, 0);
    return;
  }
  State& s = *state_;
  s.body = &body;
  s.tasks = tasks;
  s.next.store(0, std::memory_order_relaxed);
  s.busy.store(threads_ - 1, std::memory_order_relaxed);
  s.round.fetch_add(1, std::memory_order_release);
  s.round.notify_all();
  s.work(0);
  for (int spin = 0; spin < kSpins && s.busy.load(std::memory_order_acquire) != 0; ++spin)
    pause_briefly();
  for (int left = s.busy.load(std::memory_order_acquire); left != 0;
       left = s.busy.load(std::memory_order_acquire))
    s.busy.wait(left, std::memory_order_acquire);
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace lockstep
