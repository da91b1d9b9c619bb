// Simulator implements simt.h. scheduler.cpp runs the threads of a block, which are fibers, and
// lets them wait for each other; accesses.cpp checks their accesses.
#pragma once

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <ucontext.h>
#include <vector>

#include "tests/simt/memory.h"
#include "tests/simt/order.h"
#include "tests/simt/simt.h"

namespace simt {

constexpr std::size_t kStackBytes = 64 << 10;
constexpr int kWarp = 32;
constexpr std::size_t kMostThreads = 1024;
constexpr std::size_t kExchangeBytes = 64;

struct AsyncCopy {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes, from_global;  // the bytes after from_global become zeros
};

enum class State : std::uint8_t { runnable, at_barrier, in_warp, exited };

struct Fiber {
  Thread thread;
  int index = 0;  // in the block
  State state = State::runnable;
  const char* waits_for = "";
  unsigned mask = 0;
  std::uint32_t clock = 1;
  std::array<std::uint32_t, kWarp> seen{};  // clocks of the lanes that a __syncwarp ordered before
  const void* gives = nullptr;              // to an exchange
  std::size_t given_bytes = 0;
  const std::byte* got = nullptr;
  std::vector<AsyncCopy> open;                // since the last commit
  std::deque<std::vector<AsyncCopy>> groups;  // committed, the oldest first

  jmp_buf resume;
  ucontext_t entry;
  bool started = false;
  std::byte* stack = nullptr;
};

// The bytes of lanes in the last exchanges. A lane reads at its next turn. Until then the other
// lanes can finish at most one exchange each.
struct Warp {
  alignas(16) std::byte values[2 * kWarp][kWarp][kExchangeBytes];
  std::size_t exchanges = 0;
  unsigned waiting = 0;  // the lanes in State::in_warp
  unsigned alike = 0;    // the same lanes if all wait at one place with one mask; else 0
};

std::string who(const Fiber& f);  // "thread (1, 0, 0) of block (0, 0, 0)"

class Simulator {
 public:
  void launch(Extent grid, Extent block, std::size_t dynamic_bytes,
              lockstep::FunctionRef<void()> body);
  void copy(void* to, const void* from, std::size_t bytes);

  // Called by the fiber that runs.
  void access(const void* address, std::size_t bytes, bool is_write, const void* caller);
  void in_bounds(const void* address, std::size_t bytes, const char* what, const void* caller) {
    if (Region* region = find(address)) in_bounds(*region, address, bytes, what, caller);
  }
  void in_bounds(const Region& region, const void* address, std::size_t bytes, const char* what,
                 const void* caller);
  void wait_block();
  void wait_warp(unsigned mask, const char* what, bool orders_memory);
  [[noreturn]] void violate(const std::string& what, const void* caller);

  Fiber* current = nullptr;
  std::byte* shared() const { return shared_base_; }
  int syncthreads_sum(int value);
  std::mt19937_64 random{1};
  static void enter();  // of each fiber

 private:
  void run_block();
  void prepare(Fiber& fiber);
  void run(Fiber& fiber);
  void yield();
  void release_block();
  [[noreturn]] void stop();
  std::string deadlock() const;
  Region* find(const void* address);
  void begin_work();
  void copied(const void* address, std::size_t bytes, bool is_write);
  unsigned lanes_that_wait(unsigned mask, const char* what);
  bool ordered(const Stamp& earlier, bool is_shared) const;
  void check(Cell& cell, bool is_write, const Region& region, const void* caller);
  void check_static_shared(const void* address, std::size_t bytes, const void* caller);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_ = std::vector<Warp>(kMostThreads / kWarp);
  std::vector<std::uint32_t> at_barrier_ = std::vector<std::uint32_t>(kMostThreads);
  jmp_buf scheduler_;
  std::size_t threads_ = 0, arrived_ = 0, exited_ = 0;
  int sum_ = 0, sum_result_ = 0;
  std::uint32_t launch_first_ = 1, block_first_ = 1;
  Order& order_ = order();
  lockstep::FunctionRef<void()>* body_ = nullptr;
  std::string violation_;

  std::byte* shared_base_ = nullptr;
  std::unique_ptr<Region> dynamic_shared_, static_shared_;
  std::vector<Variable> variables_;
  std::size_t dynamic_bytes_ = 0;
};

Simulator& simulator();

}  // namespace simt
