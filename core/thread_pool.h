// ThreadPool: the fork-join threads of one CPU stream. Fork and join take about a microsecond while
// the workers still spin; after about 50 microseconds without work they sleep.
#pragma once

#include <cstdint>
#include <memory>

#include "core/function_ref.h"

namespace lockstep {

class ThreadPool {
 public:
  // `threads` counts the caller; threads - 1 workers are started. When the process may run on
  // exactly that many processors, each of them, the caller too, is pinned to one: two on the same
  // processor would halve the speed. The destructor gives the caller its freedom back.
  // Throws Error where the system starts no more threads.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return threads_; }

  // Calls body(task, thread) once for each task in [0, tasks), thread in [0, threads()); returns
  // when all are done. Tasks are claimed one by one, so they may differ in cost, and must not
  // depend on which thread runs them. The first exception of a body is thrown here. Not reentrant.
  void run(std::int64_t tasks, FunctionRef<void(std::int64_t task, int thread)> body);

 private:
  struct State;
  void start_workers();
  void stop_workers();

  int threads_;
  std::unique_ptr<State> state_;
};

// The processors this process may run on: its affinity mask at the first call.
int processors_allowed();

// The most threads that a person may ask for: threads that share a processor wait for each other at
// every join.
int most_threads();

// Lets the calling thread run on all of them again: threads that do not compute inherit the pin of
// the thread that starts them.
void use_all_processors();

}  // namespace lockstep
