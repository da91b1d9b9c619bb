#include "tests/sim/fiber.h"

#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <utility>

namespace lockstep::sim {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;

// The exceptions that a thread handles at the moment, by the C++ ABI. Each fiber has its own.
struct Exceptions {
  void* caught = nullptr;
  unsigned int uncaught = 0;
};

void swap_exceptions(Exceptions& with) {
  auto* globals = reinterpret_cast<Exceptions*>(abi::__cxa_get_globals());
  std::swap(globals->caught, with.caught);
  std::swap(globals->uncaught, with.uncaught);
}

}  // namespace

struct Fibers::Fiber {
  Process* process = nullptr;
  std::function<void()> body{};
  std::unique_ptr<char[]> stack{};
  ucontext_t context{}, kernel{};
  Exceptions exceptions{};
  std::uint64_t waits = 0;
  bool pending = false;  // woken while its process was paused
  bool ended = false;
};

namespace {

// The running fiber. Threads that a process starts by itself are none.
thread_local Fibers* running_fibers = nullptr;
thread_local std::size_t running_number = 0;
thread_local Process* running_process = nullptr;

}  // namespace

Fibers::Fibers(Kernel& kernel) : kernel_(kernel) {}

Fibers::~Fibers() = default;

void Fibers::kill_all() {
  for (auto& process : processes_)
    kill(*process);
}

Process& Fibers::start_process(int host) {
  auto& process = processes_.emplace_back(std::make_unique<Process>());
  process->number = static_cast<int>(processes_.size());
  process->host = host;
  return *process;
}

void Fibers::start(Process& process, std::function<void()> body) {
  auto fiber = std::make_unique<Fiber>();
  fiber->process = &process;
  fiber->body = std::move(body);
  if (stacks_.empty()) stacks_.push_back(std::make_unique_for_overwrite<char[]>(kStackBytes));
  fiber->stack = std::move(stacks_.back());
  stacks_.pop_back();
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = &fiber->kernel;
  makecontext(&fiber->context, enter, 0);
  const auto number = fibers_.size();
  fibers_.push_back(std::move(fiber));
  kernel_.after(0, [this, ticket = Ticket{number, 0}] { wake(ticket); });
}

void Fibers::enter() {
  auto& fiber = *running_fibers->fibers_[running_number];
  if (!fiber.process->dead) fiber.body();
  fiber.body = nullptr;
  fiber.ended = true;
}

void Fibers::resume(std::size_t number) {
  auto& fiber = *fibers_[number];
  if (fiber.ended) return;
  if (fiber.process->paused && !fiber.process->dead) {
    fiber.pending = true;
    return;
  }
  const auto before = std::tuple(running_fibers, running_number, running_process);
  running_fibers = this;
  running_number = number;
  running_process = fiber.process;
  swap_exceptions(fiber.exceptions);
  swapcontext(&fiber.kernel, &fiber.context);
  swap_exceptions(fiber.exceptions);
  std::tie(running_fibers, running_number, running_process) = before;
  if (fiber.ended) stacks_.push_back(std::move(fiber.stack));
}

void Fibers::kill(Process& process) {
  process.dead = true;
  for (std::size_t i = 0; i < fibers_.size(); ++i)
    if (fibers_[i]->process == &process) {
      ++fibers_[i]->waits;
      resume(i);
    }
}

void Fibers::pause(Process& process, Micros duration) {
  process.paused = true;
  kernel_.after(duration, [this, &process] {
    process.paused = false;
    for (std::size_t i = 0; i < fibers_.size(); ++i)
      if (fibers_[i]->process == &process && std::exchange(fibers_[i]->pending, false)) resume(i);
  });
}

Process* Fibers::current() {
  return running_process;
}

Fibers::Ticket Fibers::ticket() {
  return {running_number, fibers_[running_number]->waits};
}

void Fibers::block() {
  auto& fiber = *fibers_[running_number];
  if (fiber.process->dead) return;
  swapcontext(&fiber.context, &fiber.kernel);
}

void Fibers::wake(Ticket ticket) {
  auto& fiber = *fibers_[ticket.first];
  if (fiber.waits != ticket.second) return;
  ++fiber.waits;
  resume(ticket.first);
}

void Fibers::sleep(Micros pause) {
  kernel_.after(pause, [this, mine = ticket()] { wake(mine); });
  block();
}

}  // namespace lockstep::sim
