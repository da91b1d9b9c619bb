// Fibers run the code of processes unchanged: each thread of a process is a fiber, which waits in
// virtual time. A killed process runs to its end at once, and nothing that it does has an effect.
#pragma once

#include <functional>
#include <memory>
#include <ucontext.h>
#include <vector>

#include "tests/sim/kernel.h"

namespace lockstep::sim {

struct Process {
  int number = 0, host = 0;
  bool dead = false, paused = false;
  std::int64_t operations = 0;  // on files, so far
  std::int64_t epoch = 0;       // that it claimed or joined
};

class Fibers {
 public:
  explicit Fibers(Kernel& kernel);
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;
  ~Fibers();  // after kill_all()

  Process& start_process(int host);
  void start(Process& process, std::function<void()> body);
  void kill(Process& process);
  void kill_all();
  void pause(Process& process, Micros duration);

  // The process of the running fiber; nullptr: the kernel runs.
  static Process* current();

  // For a fiber. block() waits until wake() of its ticket, or until the process is killed.
  using Ticket = std::pair<std::size_t, std::uint64_t>;
  Ticket ticket();  // of the next block()
  void block();
  void wake(Ticket ticket);  // once; later calls have no effect
  void sleep(Micros pause);

 private:
  struct Fiber;
  void resume(std::size_t fiber);
  static void enter();

  Kernel& kernel_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::unique_ptr<char[]>> stacks_;  // free ones
};

}  // namespace lockstep::sim
