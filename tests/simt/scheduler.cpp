#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>
#include <sys/mman.h>

#include "tests/simt/device_memory.h"
#include "tests/simt/simulator.h"

namespace simt {
namespace {

std::string text(Index i) {
  std::ostringstream out;
  out << '(' << i.x << ", " << i.y << ", " << i.z << ')';
  return out.str();
}

}  // namespace

std::string who(const Fiber& f) {
  return "thread " + text(f.thread.thread) + " of block " + text(f.thread.block);
}

void Simulator::enter() {
  auto& s = simulator();
  for (;;) {
    (*s.body_)();
    s.current->state = State::exited;
    ++s.exited_;
    s.yield();
  }
}

// Switches to the scheduler; returns when it is this fiber's turn again.
[[gnu::noinline]] void Simulator::yield() {
  if (_setjmp(current->resume) == 0) _longjmp(scheduler_, 1);
}

[[gnu::noinline]] void Simulator::run(Fiber& fiber) {
  current = &fiber;
  if (_setjmp(scheduler_) == 0) {
    if (fiber.started) _longjmp(fiber.resume, 1);
    fiber.started = true;
    setcontext(&fiber.entry);
  }
  current = nullptr;
}

// Ends the launch: no fiber runs again, and the next block starts on fresh stacks.
void Simulator::stop() {
  for (auto& f : fibers_)
    f->state = State::exited;
  _longjmp(scheduler_, 1);
}

void Simulator::violate(const std::string& what, const void* caller) {
  violation_ = "simt: " + who(*current) + " " + what;
  if (caller != nullptr) violation_ += ", at " + source_line(caller);
  stop();
}

void Simulator::launch(Extent grid, Extent block, std::size_t dynamic_bytes,
                       lockstep::FunctionRef<void()> body) {
  const auto threads = block.count();
  if (grid.count() == 0 || threads == 0 || threads > kMostThreads || block.z > 64 ||
      grid.y > 65535 || grid.z > 65535 || grid.x > 2147483647u ||
      dynamic_bytes > most_shared_bytes())
    throw Violation("simt: a launch that no GPU takes");
  if (const auto tls = tls_block(); !static_shared_ || static_shared_->begin() != tls.begin)
    static_shared_ = std::make_unique<Region>(tls.begin, tls.bytes + 1024, true);  // and behind it
  if (!dynamic_shared_) {
    variables_ = thread_local_variables();
    shared_base_ = static_cast<std::byte*>(std::aligned_alloc(1024, 256 << 10));
    dynamic_shared_ = std::make_unique<Region>(shared_base_, 256 << 10, true);
  }
  dynamic_bytes_ = dynamic_bytes;
  body_ = &body;
  threads_ = threads;
  while (fibers_.size() < threads)
    fibers_.push_back(std::make_unique<Fiber>());
  begin_work();

  std::vector<std::uint64_t> blocks(grid.count());
  for (std::size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = i;
  std::shuffle(blocks.begin(), blocks.end(), random);
  device_memory().protect(true);
  violation_.clear();
  for (const auto b : blocks) {
    for (std::size_t t = 0; t < threads; ++t) {
      Fiber& f = *fibers_[t];
      const auto u = [](std::uint64_t v) { return static_cast<unsigned>(v); };
      f.thread = {{u(t % block.x), u(t / block.x % block.y), u(t / block.x / block.y)},
                  {u(b % grid.x), u(b / grid.x % grid.y), u(b / grid.x / grid.y)},
                  block,
                  grid};
      f.index = static_cast<int>(t);
      f.state = State::runnable;
      f.clock = 1;
      f.seen.fill(0);
      f.gives = nullptr;
      f.open.clear();
      f.groups.clear();
    }
    run_block();
    block_first_ += static_cast<std::uint32_t>(threads);
    if (!violation_.empty()) break;
  }
  device_memory().protect(false);
  if (violation_.empty()) return;
  for (auto& f : fibers_)
    f->started = false;  // its stack is no longer needed
  throw Violation(violation_);
}

[[gnu::noinline]] void Simulator::prepare(Fiber& f) {
  if (f.stack == nullptr)
    f.stack = static_cast<std::byte*>(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  getcontext(&f.entry);
  f.entry.uc_stack.ss_sp = f.stack;
  f.entry.uc_stack.ss_size = kStackBytes;
  makecontext(&f.entry, &Simulator::enter, 0);
}

void Simulator::run_block() {
  std::fill_n(at_barrier_.begin(), threads_, 0u);
  std::memset(shared_base_, 0xff, dynamic_bytes_);
  for (std::size_t w = 0; w * kWarp < threads_; ++w)
    warps_[w].waiting = warps_[w].alike = 0;
  arrived_ = exited_ = 0;
  for (std::size_t t = 0; t < threads_; ++t)
    if (!fibers_[t]->started) prepare(*fibers_[t]);
  // Each round runs the threads in another random order.
  std::vector<int> order(threads_);
  for (std::size_t t = 0; t < threads_; ++t)
    order[t] = static_cast<int>(t);
  while (exited_ < threads_ && violation_.empty()) {
    std::shuffle(order.begin(), order.end(), random);
    bool any = false;
    for (const int t : order) {
      Fiber& f = *fibers_[static_cast<std::size_t>(t)];
      if (f.state != State::runnable) continue;
      any = true;
      run(f);
      if (!violation_.empty()) return;
    }
    if (!any) {
      violation_ = "simt: " + deadlock();
      return;
    }
  }
  // Pending copies could arrive while the memory is written, or belongs to another block.
  for (std::size_t t = 0; t < threads_ && violation_.empty(); ++t)
    if (const Fiber& f = *fibers_[t]; !f.open.empty() || !f.groups.empty())
      violation_ = "simt: " + who(f) + " ends without waiting for its copies";
}

std::string Simulator::deadlock() const {
  const Fiber *waits = nullptr, *other = nullptr;
  for (std::size_t t = 0; t < threads_; ++t)
    if (fibers_[t]->state != State::exited) waits = fibers_[t].get();
  for (std::size_t t = 0; t < threads_; ++t) {
    const Fiber& f = *fibers_[t];
    const bool of_warp = f.index / kWarp == waits->index / kWarp;
    if (waits->state == State::in_warp && (!of_warp || (waits->mask >> f.index % kWarp & 1) == 0))
      continue;
    if (f.state != waits->state || f.mask != waits->mask) other = &f;
  }
  std::string what = who(*waits) + " waits at " + waits->waits_for;
  if (other == nullptr) return what + " for ever: its mask names lanes that are not there";
  what += ", which " + who(*other) + " never reaches: it ";
  return what + (other->state == State::exited ? std::string("has ended")
                                               : "waits at " + std::string(other->waits_for));
}

void Simulator::release_block() {
  for (std::size_t t = 0; t < threads_; ++t) {
    Fiber& f = *fibers_[t];
    at_barrier_[t] = f.clock++;
    f.state = State::runnable;
  }
  arrived_ = 0;
  sum_result_ = sum_;
  sum_ = 0;
}

void Simulator::wait_block() {
  current->waits_for = "__syncthreads";
  current->mask = 0;
  current->state = State::at_barrier;
  if (++arrived_ == threads_) release_block();
  yield();
}

int Simulator::syncthreads_sum(int value) {
  sum_ += value;
  wait_block();
  return sum_result_;
}

// The lanes of `mask` that wait at `what`, including the calling lane. Throws Violation if another
// lane waits elsewhere for the calling lane.
unsigned Simulator::lanes_that_wait(unsigned mask, const char* what) {
  const auto same = [&](const Fiber& f) {
    return f.mask == mask && (f.waits_for == what || std::strcmp(f.waits_for, what) == 0);
  };
  const int lane = current->index % kWarp;
  const auto first = static_cast<std::size_t>(current->index / kWarp * kWarp);
  auto& warp = warps_[first / kWarp];
  const unsigned others = warp.waiting;
  warp.waiting |= 1u << lane;
  if (others == warp.alike &&
      (others == 0 || same(*fibers_[first + static_cast<std::size_t>(std::countr_zero(others))])))
    return warp.alike = warp.waiting;
  warp.alike = 0;
  unsigned here = 0;
  for (std::size_t l = 0; l < kWarp && first + l < threads_; ++l) {
    const Fiber& f = *fibers_[first + l];
    if ((mask >> l & 1) == 0 || f.state != State::in_warp) continue;
    if (!same(f)) {
      if ((f.mask >> lane & 1) != 0)
        violate(std::string("calls ") + what + " while " + who(f) + " waits for it at " +
                    f.waits_for + (f.mask != mask ? " with another mask" : ""),
                nullptr);
      continue;
    }
    here |= 1u << l;
  }
  return here;
}

void Simulator::wait_warp(unsigned mask, const char* what, bool orders_memory) {
  const int lane = current->index % kWarp;
  if ((mask >> lane & 1) == 0)
    violate(std::string("calls ") + what + " without itself in the mask", nullptr);
  current->waits_for = what;
  current->mask = mask;
  current->state = State::in_warp;
  const auto first = static_cast<std::size_t>(current->index / kWarp * kWarp);
  if (lanes_that_wait(mask, what) == mask) {
    auto& warp = warps_[first / kWarp];
    warp.waiting &= ~mask;
    warp.alike &= ~mask;
    auto& values = warp.values[warp.exchanges++ % std::size(warp.values)];
    std::array<std::uint32_t, kWarp> joined{};
    for (std::size_t l = 0; l < kWarp; ++l) {
      if ((mask >> l & 1) == 0) continue;
      Fiber& f = *fibers_[first + l];
      f.state = State::runnable;
      if (f.gives != nullptr) std::memcpy(values[l], f.gives, f.given_bytes);
      f.gives = nullptr;
      f.got = &values[0][0];
      if (!orders_memory) continue;
      f.seen[l] = f.clock++;
      for (std::size_t k = 0; k < kWarp; ++k)
        joined[k] = std::max(joined[k], f.seen[k]);
    }
    if (orders_memory)
      for (std::size_t l = 0; l < kWarp; ++l)
        if ((mask >> l & 1) != 0) fibers_[first + l]->seen = joined;
  }
  yield();
}

}  // namespace simt
