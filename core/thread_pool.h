// ThreadPool has the fork-join threads of one CPU stream. Fork and join take about a microsecond
// while the workers spin; after about 50 microseconds without work they sleep.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/function_ref.h"

namespace lockstep {

class ThreadPool {
 public:
  // Starts threads - 1 workers; the caller is the last thread. If the process may run on exactly
  // `threads` CPUs, each thread is pinned to one, because two threads on one CPU halve the speed.
  // All threads flush denormals to zero, which are noise and slow AdamW's moments down by 2.6x.
  // The destructor undoes both for the caller. So the thread that creates pools must destroy them,
  // in reverse order. Throws Error if the system cannot start the threads.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return threads_; }

  // Calls body(task, thread) once for each task in [0, tasks), thread in [0, threads()). Returns
  // when all tasks are done. Threads claim tasks one by one, so tasks may differ in cost, and must
  // not depend on the thread. A worker that gets no CPU time delays nothing. Rethrows the first
  // exception of a body. Not reentrant.
  void run(std::int64_t tasks, FunctionRef<void(std::int64_t task, int thread)> body);

 private:
  struct State;
  void start_workers();
  void stop_workers();

  int threads_;
  std::unique_ptr<State> state_;
};

// Number of CPUs that this process may keep busy: the size of its affinity mask at the first call,
// or the limit of its control groups (a container's --cpus) if smaller. use_processors() lowers it.
int processors_allowed();

// Restricts this process, one of several on the host, to these CPUs, of which it keeps at most
// `busy` busy. Call it before pools and threads are created; they inherit the mask from the calling
// thread. Throws Error if a CPU is not in the affinity mask, so it never exceeds launcher limits.
void use_processors(std::vector<int> processors, int busy);

// Largest number of threads that a person may request. Threads that share a CPU wait for each other
// at every join.
int most_threads();

// Lets the calling thread run on all CPUs of the process again. A thread that does not compute
// calls it, because it inherits the pin of the thread that starts it.
void use_all_processors();

}  // namespace lockstep
