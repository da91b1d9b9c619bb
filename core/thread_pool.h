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
  // exactly that many processors, each worker is pinned to one.
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
  int threads_;
  std::unique_ptr<State> state_;
};

int processors_allowed();  // the processors this process may run on (its affinity mask)

}  // namespace lockstep
