// ThreadPool: the fork-join threads of one CPU stream. Fork and join take about a microsecond while
// the workers still spin; after about 50 microseconds without work they sleep.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/function_ref.h"

namespace lockstep {

class ThreadPool {
 public:
  // `threads` counts the caller; threads - 1 workers are started. When the process may run on
  // exactly that many processors, each of them, the caller too, is pinned to one: two on the same
  // processor would halve the speed. All of them flush denormals to zero: those are noise in
  // training and slow down the moments of AdamW by 2.6x. Both end for the caller with the pool: so
  // pools are destroyed by the thread that made them, the last one first.
  // Throws Error where the system starts no more threads.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return threads_; }

  // Calls body(task, thread) once for each task in [0, tasks), thread in [0, threads()); returns
  // when all are done. Tasks are claimed one by one, so they may differ in cost, and must not
  // depend on which thread runs them; a worker that gets no processor meanwhile is not waited for.
  // The first exception of a body is thrown here. Not reentrant.
  void run(std::int64_t tasks, FunctionRef<void(std::int64_t task, int thread)> body);

 private:
  struct State;
  void start_workers();
  void stop_workers();

  int threads_;
  std::unique_ptr<State> state_;
};

// How many processors this process may keep busy: those of its affinity mask at the first call, or
// as many as its control groups (a container's --cpus) pay for, if that is fewer; or what
// use_processors says.
int processors_allowed();

// From now on this process, one of several on the machine, runs on these of its processors, and
// keeps at most `busy` of them busy. Called before a pool or another thread is made, which get
// them from the calling thread. Throws Error where one is not of the affinity mask: a launcher's
// limits are never widened.
void use_processors(std::vector<int> processors, int busy);

// The most threads that a person may ask for: threads that share a processor wait for each other at
// every join.
int most_threads();

// Lets the calling thread run on all of the process's processors again: threads that do not compute
// inherit the pin of the thread that starts them.
void use_all_processors();

}  // namespace lockstep
